'use strict'
// Scenarios of rhea (AMQP 1.0): `node rhea.js SCENARIO PORT NAME` exits with status 0 if the broker behaves as expected.
// Names of queues begin with NAME.

const assert = require('node:assert/strict')
const { once } = require('node:events')
const amqplib = require('amqplib')
const rhea = require('rhea')

const [scenario, port, name] = process.argv.slice(2)
const login = { host: '127.0.0.1', port: Number(port), username: 'guest', password: 'guest', reconnect: false }

// The first of these events of an emitter, as [event, context].
function first (emitter, ...events) {
  return Promise.race(events.map(async event => [event, (await once(emitter, event))[0]]))
}

async function connected (work, options) {
  await working(rhea.create_container().connect({ ...login, ...options }), work)
}

async function working (connection, work) {
  await once(connection, 'connection_open')
  try {
    await work(connection)
  } finally {
    connection.close()
    await once(connection, 'connection_close')
  }
}

async function opened (link, kind) {
  await once(link, `${kind}_open`)
  return link
}

const sender = (connection, options) => opened(connection.open_sender(options), 'sender')

// A receiver without credit, whose deliveries the scenario settles.
const receiver = (connection, source) =>
  opened(connection.open_receiver({ source, credit_window: 0, autoaccept: false }), 'receiver')

// Send a message, and return its outcome and the context of the event.
async function send (link, message) {
  if (!link.sendable()) await once(link, 'sendable')
  link.send(message)
  return first(link, 'accepted', 'rejected', 'released', 'modified')
}

// The next delivery, or null if draining the credit shows that the queue has none.
async function next (link) {
  const arrived = first(link, 'message', 'receiver_drained')
  link.drain = true
  link.add_credit(1)
  const [event, context] = await arrived
  return event === 'message' ? context : null
}

const scenarios = {
  publishAndConsume: () => connected(async connection => {
    const publisher = await sender(connection, name)
    const consumer = await receiver(connection, name)
    for (let number = 0; number < 20; number++) {
      const sent = {
        body: { number, list: [1, 'two', null] },
        message_id: `m${number}`,
        correlation_id: 'c',
        reply_to: 'r',
        subject: 's',
        content_type: 'text/plain',
        durable: true,
        priority: 7,
        application_properties: { key: 'value' }
      }
      assert.equal((await send(publisher, sent))[0], 'accepted')
      const { message, delivery } = await next(consumer)
      for (const [field, value] of Object.entries(sent)) assert.deepEqual(message[field], value, field)
      assert.ok(!message.delivery_count)
      delivery.accept()
    }
    assert.equal(await next(consumer), null)
  }),

  wrongPassword: async () => {
    const connection = rhea.create_container().connect({ ...login, password: 'wrong' })
    connection.on('disconnected', () => {})
    const [, { error }] = await first(connection, 'connection_error', 'connection_open')
    assert.match(String(error), /failed to authenticate/i)
  },

  outcomesOfDeliveries: () => connected(async connection => {
    const publisher = await sender(connection, name)
    const consumer = await receiver(connection, name)
    await send(publisher, { body: 'first', durable: true })
    await send(publisher, { body: 'second', durable: true })
    const bodyAndCount = ({ message }) => [message.body, message.delivery_count || 0]

    let taken = await next(consumer)
    assert.deepEqual(bodyAndCount(taken), ['first', 0])
    taken.delivery.release()
    taken = await next(consumer)
    assert.deepEqual(bodyAndCount(taken), ['first', 0])
    taken.delivery.modified({ delivery_failed: true, message_annotations: { 'x-opt-why': 'busy' } })
    taken = await next(consumer)
    assert.deepEqual(bodyAndCount(taken), ['first', 1])
    assert.equal(taken.message.message_annotations['x-opt-why'], 'busy')
    taken.delivery.reject({ condition: 'app:unusable', description: 'not usable' })
    taken = await next(consumer)
    assert.deepEqual(bodyAndCount(taken), ['second', 0])
    taken.delivery.accept()
    assert.equal(await next(consumer), null)
  }),

  outcomesOfPublishes: () => connected(async connection => {
    const other = await amqplib.connect(`amqp://guest:guest@127.0.0.1:${port}/`)
    const channel = await other.createChannel()
    await channel.assertQueue(name, { maxLength: 1, overflow: 'reject-publish' })
    await other.close()
    const publisher = await sender(connection, `/queues/${name}`)
    assert.equal((await send(publisher, { body: 'fits' }))[0], 'accepted')
    const [outcome, { delivery }] = await send(publisher, { body: 'does not' })
    assert.equal(outcome, 'rejected')
    assert.equal(delivery.remote_state.error.condition, 'amqp:resource-limit-exceeded')
    const nowhere = await sender(connection, '/exchanges/amq.direct/nowhere')
    assert.equal((await send(nowhere, { body: 'lost' }))[0], 'released')
  }),

  refusedLinks: () => connected(async connection => {
    const missing = '/queues/no-such-queue'
    const publishing = connection.open_sender(missing)
    await once(publishing, 'sender_error')
    assert.equal(publishing.error.condition, 'amqp:not-found')
    const consuming = connection.open_receiver(missing)
    await once(consuming, 'receiver_error')
    assert.equal(consuming.error.condition, 'amqp:not-found')
    const publisher = await sender(connection, name) // the connection goes on
    assert.equal((await send(publisher, { body: 'still here' }))[0], 'accepted')
  }),

  creditAndDrain: () => connected(async connection => {
    const publisher = await sender(connection, name)
    for (let number = 0; number < 10; number++) await send(publisher, { body: number })
    const consumer = await receiver(connection, name)
    const got = []
    consumer.on('message', ({ message, delivery }) => {
      got.push(message.body)
      delivery.accept()
    })
    consumer.add_credit(4)
    while (got.length < 4) await once(consumer, 'message')
    consumer.add_credit(20)
    consumer.drain_credit()
    await once(consumer, 'receiver_drained')
    assert.deepEqual(got, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert.equal(consumer.credit, 0)
  }),

  presettled: () => connected(async connection => {
    const publisher = await sender(connection, { target: name, snd_settle_mode: 1 })
    const consumer = await opened(
      connection.open_receiver({ source: name, snd_settle_mode: 1, credit_window: 0 }), 'receiver')
    consumer.add_credit(100)
    if (!publisher.sendable()) await once(publisher, 'sendable')
    for (let number = 0; number < 100; number++) publisher.send({ body: number })
    const got = []
    consumer.on('message', ({ message, delivery }) => {
      assert.ok(delivery.remote_settled)
      got.push(message.body)
    })
    while (got.length < 100) await once(consumer, 'message')
    assert.deepEqual(got, Array.from({ length: 100 }, (_, number) => number))
  }),

  largeMessage: () => connected(async connection => {
    const publisher = await sender(connection, name)
    const consumer = await receiver(connection, name)
    const body = Buffer.alloc(3_000_000, Buffer.from('0123456789abc'))
    assert.equal((await send(publisher, { body: rhea.message.data_section(body) }))[0], 'accepted')
    const { message, delivery } = await next(consumer)
    assert.ok(body.equals(message.body.content))
    delivery.accept()
  }, { max_frame_size: 16384 }),

  webSocket: () => {
    const container = rhea.create_container()
    const details = container.websocket_connect(WebSocket)(`ws://127.0.0.1:${port}`, ['amqp'])
    return working(container.connect({ ...login, connection_details: details }), async connection => {
      const publisher = await sender(connection, name)
      const consumer = await receiver(connection, name)
      for (const size of [1, 200, 70_000]) {
        const body = Buffer.alloc(size, Buffer.from('0123456789abc'))
        assert.equal((await send(publisher, { body: rhea.message.data_section(body) }))[0], 'accepted')
        const { message, delivery } = await next(consumer)
        assert.ok(body.equals(message.body.content))
        delivery.accept()
      }
      assert.equal(await next(consumer), null)
    })
  },

  dynamicNode: () => connected(async connection => {
    const server = await receiver(connection, name)
    const answers = await receiver(connection, { dynamic: true })
    const requests = await sender(connection, name)
    const anonymous = await sender(connection, { target: {} })
    await send(requests, { body: '?', reply_to: answers.source.address, correlation_id: 'c1' })
    const { message, delivery } = await next(server)
    delivery.accept()
    const { reply_to: to, correlation_id } = message
    assert.equal((await send(anonymous, { to, correlation_id, body: '!' }))[0], 'accepted')
    const answer = await next(answers)
    assert.deepEqual([answer.message.body, answer.message.correlation_id], ['!', 'c1'])
    answer.delivery.accept()
  })
}

process.exitCode = 1 // stays if nothing is left to wait for before the scenario ends, as when the connection is lost
scenarios[scenario]().then(() => { process.exitCode = 0 }, error => {
  console.error(error)
  process.exit(1)
})
