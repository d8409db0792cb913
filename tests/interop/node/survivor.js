'use strict'
// amqp-connection-manager publishes and consumes, and reconnects to the broker, until stdin is closed.
// `node survivor.js PORT QUEUE` prints `sent N` for each confirmed publish, `got N` for each delivery, and the number of
// connections at the end.

const { connect } = require('amqp-connection-manager')

const [port, queue] = process.argv.slice(2)
const say = line => process.stdout.write(`${line}\n`)

let connections = 0
let running = true
const sent = []
const got = new Set()
const connection = connect([`amqp://127.0.0.1:${port}/`], { heartbeatIntervalInSeconds: 2, reconnectTimeInSeconds: 0.1 })
connection.on('connect', () => { connections += 1 })

const setup = channel => channel.assertQueue(queue, { durable: true })
const publisher = connection.createChannel({ confirm: true, setup })
const consumer = connection.createChannel({ setup })
consumer.consume(queue, message => {
  got.add(Number(message.content))
  say(`got ${message.content}`)
  consumer.ack(message)
}, { prefetch: 20 })

async function publish () {
  for (let number = 0; running; number++) {
    try {
      await publisher.sendToQueue(queue, Buffer.from(String(number)), { persistent: true })
    } catch (error) {
      if (!/channel closed/.test(error.message)) throw error
      continue // it was in flight when the connection was lost, so its outcome is unknown
    }
    sent.push(number)
    say(`sent ${number}`)
  }
}

// Messages in flight may still arrive; the test reports those that do not.
async function arrive () {
  const deadline = Date.now() + 20000
  while (Date.now() < deadline && !sent.every(number => got.has(number))) {
    await new Promise(resolve => setTimeout(resolve, 20))
  }
}

process.stdin.resume()
process.stdin.on('end', () => { running = false })
publish()
  .then(arrive)
  .then(() => connection.close())
  .then(() => say(`connections ${connections}`))
  .catch(error => {
    console.error(error)
    process.exit(1)
  })
