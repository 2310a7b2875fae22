package programs

import "testing"

// bubble runs a test in real time, because Kooper's goroutines do not end with their controller.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	test(t)
}

// standbyStops stops a replica that does not lead: Kooper waits for the lease for ever.
func standbyStops(o *output) {
	o.cancel()
	o.ended <- nil
}
