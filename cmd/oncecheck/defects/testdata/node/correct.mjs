// A layer that keeps the promise within one process. The key is looked up and taken without an await in between, so that
// nothing else runs in that moment.
const records = new Map() // user, path and key -> { print, answer }; answer is undefined while the request runs

export const once = (handler, problem) => async (request) => {
  const key = parse(request.fields['idempotency-key'])
  if (key === undefined) return problem(400, 'Idempotency-Key must be one string of 1 to 255 printable ASCII characters')
  const scope = JSON.stringify([request.user, request.url.pathname, key])
  const print = request.url.search + '\n' + compact(request.body)
  const record = records.get(scope)
  if (record && record.print !== print) return problem(422, 'the key belongs to another request')
  if (record && !record.answer) return problem(409, 'the first request is still running', { 'Retry-After': '1' })
  if (record) return { ...record.answer, headers: { ...record.answer.headers, 'Idempotent-Replayed': 'true' } }

  const mine = { print }
  records.set(scope, mine)
  try {
    mine.answer = await handler(request) // it goes on when the client leaves
  } catch (error) {
    records.delete(scope)
    throw error
  }
  return mine.answer
}

// parse returns the key of a structured-field string, or of the same without quotes, or undefined.
function parse(fields) {
  if (fields?.length !== 1) return
  const quoted = fields[0].match(/^"((?:[ !#-\[\]-~]|\\["\\])*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:"[ !#-\[\]-~]*"|[^",; ]+))?)*$/)
  const key = quoted ? quoted[1].replace(/\\(.)/g, '$1') : fields[0].match(/^[!#-+\--:<-\[\]-~]+$/)?.[0]
  return key?.length >= 1 && key.length <= 255 ? key : undefined
}

// compact returns JSON without white space, and anything else as it is.
function compact(body) {
  try { return JSON.stringify(JSON.parse(body)) } catch { return body }
}
