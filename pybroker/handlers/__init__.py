"""One module per API: check the request, call one service, shape the reply."""
