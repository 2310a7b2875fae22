package client

// OwnWrites returns the number of own writes that a client keeps.
func OwnWrites(c *Client) int {
	c.written.mu.Lock()
	defer c.written.mu.Unlock()
	return len(c.written.last)
}
