"""Body classes of requests and answers; families as in `protocol.headers`."""
