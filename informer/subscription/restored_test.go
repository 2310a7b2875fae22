package subscription_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/internal/testrun"
)

// A restored API server assigns resource versions again, so the same object with the same version may have another
// state.
func TestReusedVersionOfRestoredServerIsSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		server.Put(object("a", "backed up"))
		restore := server.Backup()
		s := newSubscription(t, config[configMap]{Retriever: server})
		out := s.Events()
		testrun.Start(t, s.Run)
		expect(t, out, "Applied a=backed up uid-1", "Synced")
		server.Put(object("a", "lost"))
		server.Put(object("b", "lost"))
		expect(t, out, "Applied a=lost uid-1", "Applied b=lost uid-1")
		restore()
		server.Put(object("a", "after"))
		time.Sleep(15 * time.Minute)
		expect(t, out, "Applied a=after uid-1", "Deleted b=lost uid-1")
	})
}
