package programs

import (
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bubble runs a test in virtual time. With Kooper the time is real, because its goroutines do not end.
func bubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, test)
}

// standbyStops stops a replica that does not lead. Kooper's waits on.
func standbyStops(o *output) { o.stop() }
