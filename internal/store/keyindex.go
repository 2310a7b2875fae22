package store

import (
	"slices"

	"github.com/evenkeel-go/evenkeel/kube"
)

// keyShards is the number of shards. The growth of a shard blocks the store only for 1/keyShards of the time that the
// whole index would need.
const keyShards = 64

// keyIndex finds slots by the hash of namespace and name. It is a hash table with open addressing that contains only
// slots: the keys are in the records.
type keyIndex struct {
	shards [keyShards]keyShard
}

// keyShard has slot+1 at the position of the hash, or at the next free one after it. 0 is free.
type keyShard struct {
	slots []uint32 // the length is a power of two, or 0
	n     int
	epoch uint64 // see table.indexEpoch
}

func (k *keyIndex) shard(hash uint64) *keyShard { return &k.shards[shardOf(hash)] }

// shardOf uses other bits than the positions in a shard.
func shardOf(hash uint64) int { return int(hash >> 58) }

// find returns the position of the key in the shard.
func (k *keyShard) find(v *view, hash uint64, key kube.Key) (place int, found bool) {
	if len(k.slots) == 0 {
		return 0, false
	}
	mask := len(k.slots) - 1
	for place = int(hash) & mask; ; place = (place + 1) & mask {
		slot := k.slots[place]
		if slot == 0 {
			return place, false
		}
		if number, name := parseKey(v.record(slot - 1)); name == key.Name &&
			v.namespaces[number].name == key.Namespace {
			return place, true
		}
	}
}

// insert adds a slot with a new key. hashOf returns the hash of a slot's key.
func (k *keyShard) insert(hash uint64, slot uint32, hashOf func(slot uint32) uint64) {
	if 4*(k.n+1) > 3*len(k.slots) {
		old := k.slots
		k.slots = make([]uint32, max(8, 2*len(old)))
		for _, s := range old {
			if s != 0 {
				k.place(hashOf(s-1), s)
			}
		}
	}
	k.place(hash, slot+1)
	k.n++
}

func (k *keyShard) place(hash uint64, entry uint32) {
	mask := len(k.slots) - 1
	place := int(hash) & mask
	for k.slots[place] != 0 {
		place = (place + 1) & mask
	}
	k.slots[place] = entry
}

// remove clears a position, and moves up the following entries that were displaced by it.
func (k *keyShard) remove(place int, hashOf func(slot uint32) uint64) {
	mask := len(k.slots) - 1
	k.n--
	for next := (place + 1) & mask; k.slots[next] != 0; next = (next + 1) & mask {
		home := int(hashOf(k.slots[next]-1)) & mask
		// It may move to place unless place is before its home position, cyclically.
		if (next-home)&mask >= (next-place)&mask {
			k.slots[place] = k.slots[next]
			place = next
		}
	}
	k.slots[place] = 0
}

// own makes the shard writable: a shard that a snapshot shares is copied.
func (k *keyShard) own(epoch uint64) {
	if k.epoch != epoch {
		k.slots = slices.Clone(k.slots)
		k.epoch = epoch
	}
}
