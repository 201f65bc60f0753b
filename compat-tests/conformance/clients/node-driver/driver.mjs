// The driver's side of PROTOCOL.md, shared by the JavaScript clients: reads requests, calls the client, answers.
// Each client's folder brings client.mjs: `hello`, `errorCode` and the classes `Producer`, `Consumer` and `Admin`,
// made by their static `open(request)`, whose methods are the operations in camel case and take the request.
import { createInterface } from 'node:readline'
import { Admin, Consumer, Producer, errorCode, hello } from './client.mjs'

const kinds = { open_producer: Producer, open_consumer: Consumer, open_admin: Admin }
const objects = new Map()
let handles = 0

async function handle(request) {
  if (request.op === 'hello') return hello
  if (request.op in kinds) {
    objects.set(++handles, await kinds[request.op].open(request))
    return handles
  }
  const object = objects.get(request.on)
  const method = request.op.replace(/_([a-z])/g, (_, letter) => letter.toUpperCase())
  if (request.op === 'close') objects.delete(request.on)
  if (typeof object?.[method] !== 'function') throw new Error(`unknown operation ${request.op}`)
  return object[method](request, objects)
}

async function answer(line) {
  const request = JSON.parse(line)
  const reply = { id: request.id }
  try {
    reply.result = (await handle(request)) ?? null
  } catch (error) {
    reply.error = { code: errorCode(error), message: String(error?.stack ?? error) }
  }
  process.stdout.write(JSON.stringify(reply) + '\n')
}

process.on('unhandledRejection', error => console.error(error))
const lines = createInterface({ input: process.stdin })
lines.on('line', answer)
lines.on('close', () => process.exit(0))
