"""A layer that keeps the promise within one process: a lock surrounds the look and the claim."""
import json
import re
import threading

records, lock = {}, threading.Lock()  # (user, path, key) -> [fingerprint, response], None while the request runs

QUOTED = re.compile(r'"((?:[ !#-\[\]-~]|\\["\\])*)"(?:; *[a-z*][a-z0-9_.*-]*(?:=(?:"[ !#-\[\]-~]*"|[^",; ]+))?)*')
BARE = re.compile(r"[!#-+\--:<-\[\]-~]+")


def parse(fields):
    """Returns the key of a structured-field string, or of the same without quotes, or None."""
    if len(fields) != 1:
        return None
    if quoted := QUOTED.fullmatch(fields[0]):
        key = re.sub(r"\\(.)", r"\1", quoted[1])
    else:
        key = fields[0] if BARE.fullmatch(fields[0]) else ""
    return key if 1 <= len(key) <= 255 else None


def compact(body):
    """Returns JSON without white space, and anything else as it is."""
    try:
        return json.dumps(json.loads(body))
    except ValueError:
        return body


def once(handler, problem):
    def protected(request):
        key = parse(request["keys"])
        if key is None:
            return problem(400, "Idempotency-Key must be one string of 1 to 255 printable ASCII characters")
        scope = request["user"], request["path"], key
        fingerprint = request["query"], compact(request["body"])
        mine = [fingerprint, None]
        with lock:
            record = records.setdefault(scope, mine)
        if record is not mine:
            return duplicate(record, fingerprint)
        try:
            mine[1] = handler(request)
        except BaseException:
            with lock:
                del records[scope]
            raise
        return mine[1]

    def duplicate(record, fingerprint):
        if record[0] != fingerprint:
            return problem(422, "the key belongs to another request")
        if record[1] is None:
            return problem(409, "the first request is still running", **{"Retry-After": "1"})
        status, headers, body = record[1]
        return status, {**headers, "Idempotent-Replayed": "true"}, body

    return protected
