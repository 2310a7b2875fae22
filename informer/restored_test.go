package informer_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/evenkeel-go/evenkeel/informer"
	"github.com/evenkeel-go/evenkeel/kube"
)

// A restored API server assigns versions a second time. The same object at the same version may then have another
// state.
func TestReusedVersionOfRestoredServerIsAnnounced(t *testing.T) {
	for _, watchList := range []bool{true, false} {
		t.Run(fmt.Sprintf("watchList=%v", watchList), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := newServer(watchList, object("a", "backed up"))
				restore := server.Backup()
				f := start(t, server, nil)
				server.Put(object("a", "lost"))
				server.Put(object("b", "lost"))
				f.expect("listed a", "updated a", "added b")
				var changed []kube.ChangedParts
				defer f.informer.Subscribe(func(c informer.Change) {
					if c.Type == informer.Updated {
						changed = append(changed, c.Changed(kube.ChangedAnything))
					}
				})()
				f.seen.take()

				restore()
				server.Put(object("a", "after"))
				time.Sleep(15 * time.Minute)
				f.expect("updated a", "deleted b")
				if got := f.value("a"); got != "after" {
					t.Errorf("a is %q, want the state after the restore", got)
				}
				if len(changed) != 1 || !changed[0].Has(kube.ChangedSpec) || changed[0].Has(kube.ChangedResourceVersion) {
					t.Errorf("changed are %v, want the data in the same version", changed)
				}
				server.DropWatches()
				server.Compact()
				time.Sleep(time.Minute)
				f.expect() // a list with the same states changes nothing
			})
		})
	}
}
