package detect

import (
	"hash/maphash"
	"sync/atomic"

	"github.com/evenkeel-go/evenkeel/kube"
)

// suspects reports quickly, and without a lock, that a key is not a suspect. It counts suspects by the hash of their
// keys. A count of zero means that no key with that hash is a suspect.
type suspects struct {
	seed   maphash.Seed
	all    atomic.Int32
	counts [1024]atomic.Int32
}

func (s *suspects) may(key kube.Key) bool {
	return s.all.Load() > 0 && s.place(key).Load() > 0
}

func (s *suspects) add(key kube.Key, n int32) {
	s.all.Add(n)
	s.place(key).Add(n)
}

func (s *suspects) place(key kube.Key) *atomic.Int32 {
	hash := maphash.String(s.seed, key.Namespace)*31 + maphash.String(s.seed, key.Name)
	return &s.counts[hash%uint64(len(s.counts))]
}
