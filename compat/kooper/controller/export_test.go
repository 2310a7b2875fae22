package controller

// KeptStates returns how many states of objects a controller keeps.
func KeptStates(c Controller) (n int) {
	o := c.(generic).objects
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, states := range o.states {
		n += len(states)
	}
	return n
}
