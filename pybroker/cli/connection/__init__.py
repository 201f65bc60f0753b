"""The way to a cluster: client settings, logins, connections and clients, and which failures pass by themselves."""
