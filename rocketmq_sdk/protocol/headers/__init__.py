"""Header classes of requests and answers, a module for each family of requests.

`protocol/headers/X.py`, `protocol/bodies/X.py` and `client/api/X.py` hold the headers,
the bodies and the client's calls of one family:

    send          sending, sending back, pushed replies
    pull          pulling from offsets
    pop           popping, acks, invisible durations, notifications
    members       heartbeats, leaving, consumer lists, queue locks, assignment
    offsets       offsets of groups and queues, resets, clones
    topics        configuration of topics
    groups        configuration of consumer groups
    transactions  ending transactions, checking half messages
    timers        recalling timed messages, timer metrics
    queries       looking up messages and units of consume queues
    routes        name servers: routes, clusters, permissions
    kv            name servers: texts by namespace and key
    registration  brokers at name servers
    replication   master and slave
    connections   connected clients: connections, subscriptions, running info
    progress      statistics of topics, groups and brokers
    admin         operation of a broker
    access        users and access control lists
"""
