package apiobject

import (
	"net/http"
	"sync"
	"time"
)

// Claims are the names of one cluster that only one holder may use. It is safe for concurrent use.
type Claims struct {
	mu   sync.Mutex
	held map[any]*claim // guarded by mu

	used Recent[any, users] // of names
}

// users are the last two users of a name. at is the time of the last use.
type users struct {
	last, before any
	at           time.Time
}

type claim struct {
	holder any
	by     string
	users  int
}

// NewClaims returns Claims without a name.
func NewClaims() *Claims {
	return &Claims{held: map[any]*claim{}, used: Recent[any, users]{Keep: 10 * time.Minute}}
}

// ClaimsOf returns the Claims of the cluster with this HTTP client. A transport that is not the cluster's has none.
func ClaimsOf(c *http.Client) *Claims {
	if t, ok := c.Transport.(interface{ Claims() *Claims }); ok {
		return t.Claims()
	}
	return NewClaims()
}

// Claim claims name for holder until release is called. The same holder may claim it several times. If another holder
// has claimed it, release is nil, and other describes that holder.
func (c *Claims) Claim(name, holder any, by string) (release func(), other string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held := c.held[name]
	switch {
	case held == nil:
		held = &claim{holder: holder, by: by}
		c.held[name] = held
	case held.holder != holder:
		return nil, held.by
	}
	held.users++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if held.users--; held.users == 0 {
			delete(c.held, name)
		}
	}, ""
}

// Use records that holder uses name. It returns false if another holder has used it since holder did: a new holder may
// replace an earlier one, but the two must not use the name in turn.
func (c *Claims) Use(name, holder any) (ok bool) {
	c.used.Do(name, func(u *users) {
		if ok = u.before != holder || time.Since(u.at) >= c.used.Keep; !ok {
			return
		}
		if u.at = time.Now(); u.last != holder {
			u.last, u.before = holder, u.last
		}
	})
	return ok
}
