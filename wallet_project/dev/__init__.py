"""The machinery behind `make run`, `make test` and their sisters: real servers on one machine, from wheels.

    __main__     the commands: run, test, soak, psql, kafka, reset
    run          brings everything up, keeps it up, takes it down
    suite        the same servers, fresh and for one pytest run
    stack        which servers are needed, and the environment variables that name them
    servers      PostgreSQL, Valkey and a Kafka-protocol broker as child processes
    bank         a sandbox bank, which can be told to misbehave
    kafka        Apache Kafka itself, from Maven's jars, for tests that need a broker which survives a restart
    root         what is different when root runs PostgreSQL
    processes    starting, watching and stopping child processes; signals; what an earlier run left behind
    console      prefixed output of several processes on one terminal

Nothing here knows Django: it talks to the project through environment variables and `manage.py`. Production
installs none of it, and no other package may import it.
"""
