package store

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
	"github.com/evenkeel-go/evenkeel/kube"
)

// Records keep UUIDs and numbers in binary. Text that only resembles them must be kept as text.
func TestUnusualIdentifiersAreRestored(t *testing.T) {
	t.Parallel()
	const uuid = "01234567-89ab-cdef-0123-456789abcdef"
	uids := []string{uuid, "", "u", strings.ToUpper(uuid), strings.ReplaceAll(uuid, "-", ""), uuid + "0", uuid[:35] + "g"}
	for _, i := range []int{8, 13, 18, 23} { // another separator, and another place for it
		uids = append(uids, uuid[:i]+"0"+uuid[i+1:], uuid[:i]+uuid[i+1:]+"0")
	}
	versions := []string{"0", "9", "10", "100", "1000000000", "9007199254740993", "01", "", "-1", "1e3", "18446744073709551616", "opaque"}
	s := New(Config{})
	raw := int64(0)
	for i := range max(len(uids), len(versions)) {
		o := &wire.Object{
			Format: wire.JSON, Key: kube.Key{Name: fmt.Sprint("o", i)},
			UID: types.UID(uids[i%len(uids)]), ResourceVersion: versions[i%len(versions)],
		}
		o.Bytes = fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q,"resourceVersion":%q}}`, o.Key.Name, o.UID, o.ResourceVersion)
		put(t, s, o)
		raw += int64(len(o.Bytes))
		r, _ := s.Get(o.Key)
		if err := r.Read(func(got *wire.Object) error {
			if describe(got) != describe(o) {
				t.Errorf("put %s\ngot %s", describe(o), describe(got))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
		if got := s.Sizes().Raw; got != raw {
			t.Fatalf("with uid %q and resourceVersion %q, Sizes reports %d raw bytes, want %d", o.UID, o.ResourceVersion, got, raw)
		}
	}
}
