// Express with express-idempotency, as its README has it. In an empty folder:
//
//	npm install express express-idempotency && NODE_PATH=node_modules node express.js
//	oncecheck -verbose -H 'Authorization: Bearer ann' -H2 'Authorization: Bearer bob' -d '{"amount":{{n}}}' -slow slow=1s \
//	  -effects http://127.0.0.1:18080/payments http://127.0.0.1:18080/payments | awk '
//	    $3 ~ /^[a-z]+\/[a-z0-9-]+$/ && $1 != "not" { split($3, id, "/"); asked[id[1]]++; held[id[1]] += $1 == "held" }
//	    END { for (group in asked) print group, held[group] "/" asked[group] }'
const { randomUUID } = require('crypto')
const express = require('express')
const { idempotency, getSharedIdempotencyService } = require('express-idempotency')

const payments = []
const app = express()
app.use(express.json())
app.use(idempotency())
app.get('/payments', (request, response) => response.json(payments))
app.post('/payments', async (request, response) => {
  if (getSharedIdempotencyService().isHit(request)) return
  await new Promise((resolve) => setTimeout(resolve, request.query.slow ? 1000 : 20))
  const payment = { id: randomUUID(), amount: request.body.amount }
  payments.push(payment)
  response.status(201).location(`/payments/${payment.id}`).json(payment)
})
app.listen(18080, '127.0.0.1')
