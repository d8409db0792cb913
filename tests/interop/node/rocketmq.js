'use strict'
// Scenarios of rocketmq-client-nodejs. `node rocketmq.js` reads lines from its input, NAME and PORT with a tab between
// them, and prints `NAME ok` or `NAME failed: REASON` for each. The topics node-normal, node-fifo, node-delay, node-pushed, node-tx and node-survivors
// exist.

const assert = require('node:assert/strict')
const readline = require('node:readline')
const { setTimeout: sleep } = require('node:timers/promises')
const { ConsumeResult, Producer, PushConsumer, SimpleConsumer } = require('rocketmq-client-nodejs')
const { TransactionResolution } = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb')

const PATIENCE = 60_000
const silent = () => {}
const logger = { info: silent, warn: silent, error: silent, debug: silent }

let endpoints
let survivor
let survivors

const numbers = count => Array.from({ length: count }, (_, i) => String(i))
const texts = messages => messages.map(each => each.body.toString())
const options = () => ({ endpoints, namespace: '', logger, requestTimeout: 20_000 })

// Answers each check as the message's body says, and counts the checks.
class Checker {
  checks = {}

  async check (message) {
    const text = message.body.toString()
    this.checks[text] = (this.checks[text] ?? 0) + 1
    if (text.startsWith('commit') || (text.startsWith('later') && this.checks[text] > 1)) return TransactionResolution.COMMIT
    return text.startsWith('rollback') ? TransactionResolution.ROLLBACK : null
  }
}

function message (topic, text, more) {
  const properties = new Map([['shop', 'north']])
  return { topic, tag: 'a', keys: ['key-' + text], body: Buffer.from(text), properties, ...more }
}

async function producing (topic, checker, work) {
  const producer = new Producer({ ...options(), topic, checker })
  await producer.startup()
  try {
    return await work(producer)
  } finally {
    await producer.shutdown()
  }
}

function send (topic, all, more) {
  return producing(topic, undefined, async producer => {
    const ids = []
    for (const text of all) ids.push((await producer.send(message(topic, text, more))).messageId)
    return ids
  })
}

async function consuming (topic, consumerGroup, work) {
  const subscriptions = new Map([[topic, '*']])
  const consumer = new SimpleConsumer({ ...options(), consumerGroup, subscriptions, awaitDuration: 5_000 })
  await consumer.startup()
  try {
    return await work(consumer)
  } finally {
    await consumer.shutdown()
  }
}

// Receive and acknowledge messages until there are `count`.
async function acknowledged (consumer, count) {
  const found = []
  const until = Date.now() + PATIENCE
  while (found.length < count && Date.now() < until) {
    for (const each of await consumer.receive(16, 15_000)) {
      found.push(each)
      await consumer.ack(each)
    }
  }
  return found
}

const consumed = (topic, group, count) => consuming(topic, group, consumer => acknowledged(consumer, count))

async function transact (producer, topic, text) {
  const transaction = producer.beginTransaction()
  await producer.send(message(topic, text), transaction)
  if (text.startsWith('at once')) await transaction.commit()
  if (text.startsWith('not at all')) await transaction.rollback()
}

const scenarios = {
  sendAndConsume: async () => {
    const sent = await send('node-normal', numbers(20))
    const found = await consumed('node-normal', 'node-readers', 20)
    assert.deepEqual(found.map(each => each.messageId).sort(), sent.sort())
    for (const each of found) {
      assert.deepEqual(
        [each.tag, each.keys, each.properties.get('shop'), each.deliveryAttempt],
        ['a', ['key-' + each.body], 'north', 1])
    }
  },

  invisibleTime: () => consuming('node-normal', 'node-again', async consumer => {
    await acknowledged(consumer, 20) // of the scenario before
    await send('node-normal', ['again'])
    const first = await consumer.receive(16, 15_000)
    assert.deepEqual(texts(first), ['again'])
    await consumer.changeInvisibleDuration(first[0], 1_000)
    const second = await acknowledged(consumer, 1)
    assert.deepEqual([texts(second), second[0].deliveryAttempt], [['again'], 2])
  }),

  messageGroups: async () => {
    await send('node-fifo', numbers(10), { messageGroup: 'g' })
    assert.deepEqual(texts(await consumed('node-fifo', 'node-in-order', 10)), numbers(10))
  },

  delay: () => producing('node-delay', undefined, async producer => {
    const deliveryTimestamp = new Date(Date.now() + 2_000)
    const recalled = await producer.send(message('node-delay', 'recalled', { deliveryTimestamp }))
    await producer.send(message('node-delay', 'delayed', { deliveryTimestamp }))
    await producer.recallMessage('node-delay', recalled.recallHandle)
    assert.deepEqual(texts(await consumed('node-delay', 'node-patient', 1)), ['delayed'])
    assert(Date.now() >= deliveryTimestamp.getTime(), 'the message came early')
  }),

  wrongType: () => assert.rejects(send('node-delay', ['normal']), /type/),

  push: async () => {
    await send('node-pushed', numbers(5))
    const seen = {}
    const listener = {
      consume: async each => {
        const text = each.body.toString()
        seen[text] = (seen[text] ?? 0) + 1
        return text === '0' && seen[text] === 1 ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS
      }
    }
    const subscriptions = new Map([['node-pushed', '*']])
    const consumer = new PushConsumer({ ...options(), consumerGroup: 'node-pushers', subscriptions, messageListener: listener })
    await consumer.startup()
    const expected = { 0: 2, 1: 1, 2: 1, 3: 1, 4: 1 }
    const until = Date.now() + PATIENCE
    while ((Object.keys(seen).length < 5 || seen[0] < 2) && Date.now() < until) await sleep(20)
    assert.deepEqual(seen, expected) // stopping the consumer takes as long as the client polls
  },

  transactions: async () => {
    const checker = new Checker()
    await producing('node-tx', checker, async producer => {
      for (const text of ['at once', 'not at all', 'commit', 'rollback', 'later', 'unknown']) {
        await transact(producer, 'node-tx', text)
      }
      const found = await consumed('node-tx', 'node-deciders', 3)
      assert.deepEqual(texts(found).sort(), ['at once', 'commit', 'later'])
      delete checker.checks.unknown // asked again and again
      assert.deepEqual(checker.checks, { commit: 1, rollback: 1, later: 2 })
    })
  },

  // Before and after a kill of the broker.

  workBeforeAKill: async () => {
    survivors = new Checker()
    survivor = new Producer({ ...options(), topic: 'node-survivors', checker: survivors })
    await survivor.startup()
    for (const number of numbers(5)) {
      for (const text of ['at once ', 'not at all ', 'commit by check ']) {
        await transact(survivor, 'node-survivors', text + number)
      }
    }
  },

  goOnAfterAKill: async () => {
    const until = Date.now() + PATIENCE
    for (;;) {
      try {
        await transact(survivor, 'node-survivors', 'at once after')
        break
      } catch (error) {
        if (Date.now() > until) throw error
      }
    }
    const expected = ['at once after', ...numbers(5).flatMap(each => ['at once ' + each, 'commit by check ' + each])]
    const found = await consumed('node-survivors', 'node-survivors', expected.length)
    assert.deepEqual(texts(found).sort(), expected.sort())
  }
}

async function main () {
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const [name, port] = line.split('\t')
    endpoints = '127.0.0.1:' + port
    try {
      await scenarios[name]()
      console.log(`${name} ok`)
    } catch (error) {
      console.log(`${name} failed: ${String(error.stack ?? error).replaceAll(/\s+/g, ' ')}`)
    }
  }
  process.exit(0)
}

main()
