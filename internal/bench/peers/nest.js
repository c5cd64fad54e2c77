// Nest with @node-idempotency/nestjs. In an empty folder:
//
//	npm install @nestjs/core@10 @nestjs/common@10 @nestjs/platform-express@10 reflect-metadata rxjs \
//	  @node-idempotency/nestjs @node-idempotency/storage-adapter-memory && NODE_PATH=node_modules node nest.js
//
// and oncecheck as in express.js.
require('reflect-metadata')
const { randomUUID } = require('crypto')
const { applyDecorators, Body, Controller, Get, Module, Post, Query, Res } = require('@nestjs/common')
const { NestFactory } = require('@nestjs/core')
const { Idempotent, NodeIdempotencyModule } = require('@node-idempotency/nestjs')

const payments = []
class Payments {
  list() {
    return payments
  }
  async create(body, query, response) {
    await new Promise((resolve) => setTimeout(resolve, query.slow ? 1000 : 20))
    const payment = { id: randomUUID(), amount: body.amount }
    payments.push(payment)
    response.location(`/payments/${payment.id}`)
    return payment
  }
}
class App {}

// As TypeScript has it: @Post() @Idempotent({}) create(@Body() body, ...)
const decorate = (name, ...decorators) =>
  applyDecorators(...decorators)(Payments.prototype, name, Object.getOwnPropertyDescriptor(Payments.prototype, name))
Controller('payments')(Payments)
decorate('list', Get())
decorate('create', Post(), Idempotent({}))
Body()(Payments.prototype, 'create', 0)
Query()(Payments.prototype, 'create', 1)
Res({ passthrough: true })(Payments.prototype, 'create', 2)
Module({ imports: [NodeIdempotencyModule.forRootAsync({ storage: { adapter: 'memory' } })], controllers: [Payments] })(App)

NestFactory.create(App, { logger: false }).then((app) => app.listen(18080, '127.0.0.1'))
