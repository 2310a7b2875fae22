package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
)

// connections limits the connections of a server.
type connections struct {
	limit int

	mu    sync.Mutex
	all   map[net.Conn]*connection // guarded by mu
	clock uint64                   // guarded by mu; counts changes
}

// connection is guarded by connections.mu.
type connection struct {
	requests int    // in progress
	since    uint64 // without a request, or when its request began, by the clock
}

type connectionKey struct{}

// context is http.Server.ConnContext, which is called for each new connection. If there are too many, it closes another
// one: so clients that open connections, send slowly, or do not read their responses cannot keep others out.
func (c *connections) context(ctx context.Context, conn net.Conn) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	state := &connection{since: c.clock}
	if len(c.all) >= c.limit {
		oldest := c.oldestLocked()
		delete(c.all, oldest)
		_ = closeNow(oldest)
	}
	c.all[conn] = state
	return context.WithValue(ctx, connectionKey{}, state)
}

// begin records a request in progress. Connections without one are closed before its connection, until end.
func (c *connections) begin(ctx context.Context) (end func()) {
	conn, _ := ctx.Value(connectionKey{}).(*connection)
	c.count(conn, 1)
	return func() { c.count(conn, -1) }
}

// count changes the number of requests in progress of a connection.
func (c *connections) count(conn *connection, n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clock++
	conn.requests, conn.since = conn.requests+n, c.clock
}

// stateChanged is http.Server.ConnState.
func (c *connections) stateChanged(conn net.Conn, state http.ConnState) {
	if state == http.StateClosed || state == http.StateHijacked {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.all, conn)
	}
}

// oldestLocked returns the connection that must be closed for a new one: the one without a request for the longest
// time, otherwise the one whose request began first. mu must be held.
func (c *connections) oldestLocked() net.Conn {
	var oldest net.Conn
	var state *connection
	for conn, other := range c.all {
		idle := other.requests == 0
		switch {
		case oldest == nil, idle && state.requests > 0, idle == (state.requests == 0) && other.since < state.since:
			oldest, state = conn, other
		}
	}
	return oldest
}

// closeNow closes a connection without the TLS alert, which would wait for the client.
func closeNow(conn net.Conn) error {
	if wrapped, ok := conn.(*tls.Conn); ok {
		conn = wrapped.NetConn()
	}
	return conn.Close()
}
