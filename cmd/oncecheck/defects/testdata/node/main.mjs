// A payments API in Node without dependencies: node main.mjs naive|correct. It prints its address.
import http from 'node:http'
import { randomUUID } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'

const { once } = await import(`./${process.argv[2]}.mjs`)
const payments = []

// pay is the handler: it knows nothing of keys.
async function pay({ user, url, body }) {
  let order
  try { order = JSON.parse(body) } catch { return problem(400, 'the body is not JSON') }
  await sleep(url.searchParams.has('slow') ? 1000 : 20) // the bank
  const payment = { id: randomUUID(), user, amount: order.amount }
  payments.push(payment)
  return {
    status: 201, body: JSON.stringify(payment),
    headers: { 'Content-Type': 'application/json', Location: `/payments/${payment.id}`, Link: ['</a>; rel=a', '</b>; rel=b'] },
  }
}

export function problem(status, title, headers = {}) {
  return {
    status, body: JSON.stringify({ type: 'about:blank', title, status }),
    headers: { 'Content-Type': 'application/problem+json', 'Cache-Control': 'no-store', ...headers },
  }
}

const protectedPay = once(pay, problem)

const server = http.createServer(async (request, response) => {
  const url = new URL(request.url, 'http://localhost')
  let answer = problem(405, 'POST a payment, or GET them')
  if (request.method === 'GET' || request.method === 'HEAD') {
    answer = { status: 200, headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(payments) }
  } else if (request.method === 'POST' && url.pathname === '/payments') {
    const chunks = []
    try { for await (const chunk of request) chunks.push(chunk) } catch { return } // the body was cut
    const user = request.headers.authorization
    answer = await protectedPay({ user, url, body: Buffer.concat(chunks).toString(), fields: request.headersDistinct })
  }
  response.writeHead(answer.status, { ...answer.headers, 'Content-Length': Buffer.byteLength(answer.body) })
  response.end(answer.body)
})
server.listen(0, '127.0.0.1', () => console.log(`http://127.0.0.1:${server.address().port}/payments`))
