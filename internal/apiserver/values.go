package apiserver

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"

	"k8s.io/apimachinery/pkg/types"
)

// values makes the uids, generated names and allocated values of a server. They follow from the seed, from what they
// are for, and from how many were made for that before. So they do not depend on the order in which clients write
// other objects.
type values struct {
	seed, cluster uint64
	made          map[uint64]uint32 // the number of values by the hash of what they are for, which is small
}

// fork returns values that go on independently.
func (v values) fork() values {
	v.made = maps.Clone(v.made)
	return v
}

// next returns the random numbers for the next value of what the parts name.
func (v values) next(parts ...string) *rand.PCG {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d/%d/%s", v.seed, v.cluster, strings.Join(parts, "/")))
	hash := binary.BigEndian.Uint64(sum[:])
	v.made[hash]++
	return rand.NewPCG(hash, uint64(v.made[hash]))
}

// uid returns the next uid for an object or a token, in the form of a random UUID.
func (v values) uid(parts ...string) types.UID {
	var b [16]byte
	random := v.next(append([]string{"uid"}, parts...)...)
	binary.BigEndian.PutUint64(b[:8], random.Uint64())
	binary.BigEndian.PutUint64(b[8:], random.Uint64())
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return types.UID(fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:]))
}

// generateName appends five random characters to base, which it cuts to 58 characters first.
func (v values) generateName(resource, namespace, base string) string {
	const alphabet = "bcdfghjklmnpqrstvwxz2456789" // no vowels, so that no words appear
	const longest = 58
	if len(base) > longest {
		base = base[:longest]
	}
	random, suffix := v.next("name", resource, namespace, base), make([]byte, 5)
	for i := range suffix {
		suffix[i] = alphabet[random.Uint64()%uint64(len(alphabet))]
	}
	return base + string(suffix)
}
