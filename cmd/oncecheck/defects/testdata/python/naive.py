"""The layer that one writes first: it looks for the key, and stores the body of the response under it."""
bodies = {}


def once(handler, problem):
    def protected(request):
        key = request["keys"][0] if request["keys"] else None
        if not key:
            return handler(request)
        if key in bodies:
            return 200, {"Content-Type": "application/json"}, bodies[key]
        status, headers, body = handler(request)
        bodies[key] = body
        return status, headers, body

    return protected
