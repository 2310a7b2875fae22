package apiobject

import "sync"

// Claims are names that only one holder may use at a time. The zero value is ready. It is safe for concurrent use.
type Claims struct {
	mu   sync.Mutex
	held map[any]*claim // guarded by mu
}

type claim struct {
	holder any
	by     string
	users  int
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
		if c.held == nil {
			c.held = map[any]*claim{}
		}
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
