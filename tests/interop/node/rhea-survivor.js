'use strict'
// rhea publishes and consumes, and reconnects to the broker, until stdin is closed.
// `node rhea-survivor.js PORT QUEUE` prints `sent N` for each accepted message, `got N` for each delivery, and the number
// of connections at the end.

const rhea = require('rhea')

const WINDOW = 20
const [port, queue] = process.argv.slice(2)
const say = line => process.stdout.write(`${line}\n`)

let connections = 0
let running = true
let number = 0
const sent = []
const got = new Set()
const unsettled = new Map()

const connection = rhea.create_container().connect({
  host: '127.0.0.1',
  port: Number(port),
  username: 'guest',
  password: 'guest',
  initial_reconnect_delay: 50,
  max_reconnect_delay: 100
})
const sender = connection.open_sender(queue)
const receiver = connection.open_receiver({ source: queue, credit_window: WINDOW })

function publish () {
  while (running && unsettled.size < WINDOW && sender.sendable()) {
    unsettled.set(sender.send({ body: number, durable: true }), number)
    number += 1
  }
}

// Messages in flight may still arrive; the test reports those that do not.
function closeWhenArrived () {
  if (running || unsettled.size > 0 || !sent.every(one => got.has(one))) return
  connection.close()
}

connection.on('connection_open', () => { connections += 1 })
connection.on('disconnected', () => unsettled.clear()) // their outcome is unknown
connection.on('connection_close', () => say(`connections ${connections}`))
sender.on('sendable', publish)
sender.on('accepted', ({ delivery }) => {
  const accepted = unsettled.get(delivery)
  unsettled.delete(delivery)
  sent.push(accepted)
  say(`sent ${accepted}`)
  publish()
  closeWhenArrived()
})
receiver.on('message', ({ message }) => {
  got.add(message.body)
  say(`got ${message.body}`)
  closeWhenArrived()
})

process.stdin.resume()
process.stdin.on('end', () => {
  running = false
  closeWhenArrived()
})
