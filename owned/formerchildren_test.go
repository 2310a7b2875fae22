package owned

import (
	"testing"
	"testing/synctest"
	"time"
)

// An owner that was searched for former children stays stored while it is handled.
func TestSearchedOwnersExpire(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var owners searchedOwners
		owners.add("idle")
		owners.add("handled")
		for range 4 {
			time.Sleep(minSearchedFor * 3 / 4)
			if !owners.has("handled") {
				t.Fatal("an owner that is handled has expired")
			}
		}
		if owners.has("idle") || len(owners.recent)+len(owners.earlier) > 2 {
			t.Errorf("owners: recent %v, earlier %v", owners.recent, owners.earlier)
		}
	})
}
