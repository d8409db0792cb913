'use strict'
// Scenarios of amqplib: `node scenarios.js SCENARIO PORT NAME` exits with status 0 if the broker behaves as expected.
// Names of queues and exchanges begin with NAME.

const assert = require('node:assert/strict')
const { once } = require('node:events')
const amqp = require('amqplib')

const [scenario, port, name] = process.argv.slice(2)
const url = `amqp://guest:guest@127.0.0.1:${port}/`

async function connected (work, options) {
  const connection = await amqp.connect(url, options)
  try {
    await work(connection)
  } finally {
    await connection.close().catch(() => {})
  }
}

// Consume and acknowledge the next `count` messages of a queue.
async function take (channel, queue, count, options = {}) {
  const got = []
  await new Promise((resolve, reject) => {
    channel.consume(queue, message => {
      if (message === null) return reject(new Error('cancelled'))
      got.push(message)
      if (!options.noAck) channel.ack(message)
      if (got.length === count) resolve()
    }, { consumerTag: `${name}-take`, ...options }).catch(reject)
  })
  await channel.cancel(`${name}-take`)
  return got
}

const bodies = messages => messages.map(message => message.content.toString())
const range = count => Array.from({ length: count }, (_, i) => String(i))

const scenarios = {
  publishConfirmConsume: () => connected(async connection => {
    const channel = await connection.createConfirmChannel()
    await channel.prefetch(10)
    const { queue } = await channel.assertQueue(name, { durable: true })
    await channel.assertExchange(`${name}-x`, 'topic', { durable: false, autoDelete: true })
    await channel.bindQueue(queue, `${name}-x`, 'a.#')
    for (const body of range(200)) channel.publish(`${name}-x`, 'a.b', Buffer.from(body), { persistent: true })
    await channel.waitForConfirms()
    assert.equal((await channel.checkQueue(queue)).messageCount, 200)
    assert.deepEqual(bodies(await take(channel, queue, 200)), range(200))
    assert.equal(await channel.get(queue), false)
    channel.sendToQueue(queue, Buffer.from('got'))
    await channel.waitForConfirms()
    const message = await channel.get(queue)
    assert.equal(message.fields.messageCount, 0)
    channel.nack(message)
    const again = await channel.get(queue)
    assert.equal(again.fields.redelivered, true)
    channel.ack(again)
    assert.equal((await channel.purgeQueue(queue)).messageCount, 0)
    assert.equal((await channel.deleteQueue(queue)).messageCount, 0)
  }),

  returnsAndNacks: () => connected(async connection => {
    const channel = await connection.createConfirmChannel()
    const returned = once(channel, 'return')
    channel.publish('', `${name}-none`, Buffer.from('lost'), { mandatory: true, messageId: 'm' })
    await channel.waitForConfirms()
    const [message] = await returned
    assert.equal(message.fields.replyCode, 312)
    assert.equal(message.fields.replyText, 'NO_ROUTE')
    assert.equal(message.properties.messageId, 'm')
    assert.equal(message.content.toString(), 'lost')
    await channel.assertQueue(name, { exclusive: true, maxLength: 1, overflow: 'reject-publish' })
    channel.sendToQueue(name, Buffer.from('fits'))
    await channel.waitForConfirms()
    channel.sendToQueue(name, Buffer.from('does not'))
    await assert.rejects(channel.waitForConfirms(), /nacked/)
  }),

  tables: () => connected(async connection => {
    const channel = await connection.createChannel()
    const { queue } = await channel.assertQueue('', { exclusive: true })
    const headers = {
      bool: true,
      small: 5,
      negative: -70000,
      large: 2 ** 40,
      double: 0.1,
      text: 'ü',
      buffer: Buffer.from([0, 255]),
      list: [1, 'a', [false, null], { x: 1 }],
      table: { a: { b: { c: 'd' } } },
      nothing: null,
      byte: { '!': 'byte', value: -5 },
      short: { '!': 'short', value: -300 },
      int: { '!': 'int', value: 70000 },
      long: { '!': 'long', value: 2 ** 50 },
      float: { '!': 'float', value: 0.5 },
      timestamp: { '!': 'timestamp', value: 1234567890 },
      decimal: { '!': 'decimal', value: { digits: 314, places: 2 } }
    }
    const expected = { ...headers, byte: -5, short: -300, int: 70000, long: 2 ** 50, float: 0.5 }
    const options = {
      headers,
      contentType: 'text/plain',
      contentEncoding: 'utf-8',
      priority: 3,
      correlationId: 'c',
      replyTo: 'r',
      expiration: '60000',
      messageId: 'm',
      timestamp: 1234567890,
      type: 't',
      userId: 'guest',
      appId: 'a'
    }
    channel.sendToQueue(queue, Buffer.from('x'), options)
    const [message] = await take(channel, queue, 1)
    assert.deepEqual(message.properties.headers, expected)
    for (const [key, value] of Object.entries(options)) {
      if (key !== 'headers') assert.deepEqual(message.properties[key], value, key)
    }
    // Queue arguments can also have every type, and are compared on the second declaration.
    await channel.assertQueue(name, { exclusive: true, arguments: headers })
    await channel.assertQueue(name, { exclusive: true, arguments: headers })
  }),

  errors: () => connected(async connection => {
    const attempts = [
      [404, channel => channel.checkQueue(`${name}-none`)],
      [404, channel => channel.bindQueue(name, `${name}-none`, 'k')],
      [406, channel => channel.assertQueue(name, { exclusive: true, maxLength: 5 })],
      [403, channel => channel.assertQueue('amq.mine')],
      [406, channel => channel.assertExchange('amq.direct', 'fanout')]
    ]
    const first = await connection.createChannel()
    await first.assertQueue(name, { exclusive: true })
    for (const [code, attempt] of attempts) {
      const channel = await connection.createChannel()
      channel.on('error', () => {})
      await assert.rejects(attempt(channel), error => error.code === code, `expected ${code}`)
    }
    await connected(async other => {
      const channel = await other.createChannel()
      channel.on('error', () => {})
      await assert.rejects(channel.checkQueue(name), { code: 405 })
    })
    const channel = await connection.createChannel()
    const closed = once(channel, 'error')
    channel.ack({ fields: { deliveryTag: 99 } })
    assert.match((await closed)[0].message, /406 \(PRECONDITION-FAILED\) with message "PRECONDITION_FAILED - unknown delivery tag 99"/)
    await first.checkQueue(name)
    await assert.rejects(amqp.connect(url.replace('guest:guest', 'guest:wrong')), /ACCESS_REFUSED|403/)
    await assert.rejects(amqp.connect(`${url}none`), /ConnectionClose/) // amqplib does not report the reason
  }),

  cancelled: () => connected(async connection => {
    const channel = await connection.createChannel()
    const other = await connection.createChannel()
    await channel.assertQueue(name)
    let heard
    const cancelled = new Promise(resolve => { heard = resolve })
    await channel.consume(name, heard)
    await other.deleteQueue(name)
    assert.equal(await cancelled, null)
  }),

  deadLetters: () => connected(async connection => {
    const channel = await connection.createChannel()
    await channel.assertExchange(`${name}-x`, 'fanout', { autoDelete: true })
    const { queue: dead } = await channel.assertQueue('', { exclusive: true })
    await channel.bindQueue(dead, `${name}-x`, '')
    await channel.assertQueue(name, { exclusive: true, deadLetterExchange: `${name}-x`, messageTtl: 60000 })
    channel.sendToQueue(name, Buffer.from('rejected'))
    channel.nack(await channel.get(name), false, false)
    channel.sendToQueue(name, Buffer.from('expired'), { expiration: 20 })
    const got = await take(channel, dead, 2)
    assert.deepEqual(bodies(got), ['rejected', 'expired'])
    const deaths = got.map(message => message.properties.headers['x-death'])
    assert.deepEqual(deaths.map(([death]) => [death.reason, death.queue, death.count, death['routing-keys']]), [
      ['rejected', name, 1, [name]],
      ['expired', name, 1, [name]]
    ])
    assert.equal(deaths[1][0]['original-expiration'], '20')
    assert.equal(deaths[0][0].time['!'], 'timestamp')
    assert.equal(got[1].properties.expiration, undefined)
  }),

  rpc: () => connected(async connection => {
    const server = await connection.createChannel()
    const client = await connection.createChannel()
    await server.assertQueue(name, { exclusive: true })
    await server.consume(name, request => {
      server.sendToQueue(request.properties.replyTo, Buffer.from(request.content.toString().toUpperCase()), {
        correlationId: request.properties.correlationId
      })
    }, { noAck: true })
    const answer = new Promise((resolve, reject) => {
      client.consume('amq.rabbitmq.reply-to', resolve, { noAck: true }).catch(reject)
    })
    client.sendToQueue(name, Buffer.from('question'), { replyTo: 'amq.rabbitmq.reply-to', correlationId: '7' })
    const message = await answer
    assert.equal(message.content.toString(), 'QUESTION')
    assert.equal(message.properties.correlationId, '7')
  }),

  streams: () => connected(async connection => {
    const channel = await connection.createConfirmChannel()
    await channel.prefetch(10)
    await channel.assertQueue(name, { durable: true, arguments: { 'x-queue-type': 'stream' } })
    for (const body of range(10)) channel.sendToQueue(name, Buffer.from(body))
    await channel.waitForConfirms()
    const got = await take(channel, name, 4, { arguments: { 'x-stream-offset': 6 } })
    assert.deepEqual(bodies(got), ['6', '7', '8', '9'])
    assert.deepEqual(got.map(message => message.properties.headers['x-stream-offset']), [6, 7, 8, 9])
    await channel.deleteQueue(name)
  }),

  large: () => connected(async connection => {
    const channel = await connection.createConfirmChannel()
    const { queue } = await channel.assertQueue('', { exclusive: true })
    for (const size of [0, 1, 4088, 131064, 10 * 1024 * 1024]) {
      const body = Buffer.alloc(size, 'abc')
      channel.sendToQueue(queue, body, { persistent: true })
      await channel.waitForConfirms()
      assert((await channel.get(queue, { noAck: true })).content.equals(body), `${size} bytes`)
    }
  }),

  heartbeats: async () => {
    const connection = await amqp.connect(`${url}?heartbeat=3`)
    const channel = await connection.createChannel()
    await channel.assertQueue(name, { exclusive: true })
    await new Promise(resolve => setTimeout(resolve, 8000)) // idle: only heartbeats are exchanged
    await channel.checkQueue(name)
    await connection.close()
  },

  manyChannels: () => connected(async connection => {
    const channels = await Promise.all(range(2047).map(() => connection.createChannel()))
    await assert.rejects(connection.createChannel(), /No channels left/)
    const { queue } = await channels[2046].assertQueue('', { exclusive: true })
    for (const channel of channels) channel.sendToQueue(queue, Buffer.from('x'))
    assert.equal((await take(channels[0], queue, 2047)).length, 2047)
  })
}

process.exitCode = 1 // stays if nothing is left to wait for before the scenario ends, as when the connection is lost
scenarios[scenario]().then(() => { process.exitCode = 0 }, error => {
  console.error(error)
  process.exit(1)
})
