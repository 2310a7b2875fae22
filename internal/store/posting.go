package store

import (
	"slices"
	"sort"
)

// blockSize limits the number of slots that an insert or a removal moves.
const blockSize = 256

// posting is a sorted set of slots, in blocks. It is always exact: a slot is removed at once, which is cheap because
// the blocks are small. Its size is therefore correct, and its slots need no verification or cleanup.
type posting struct {
	blocks [][]uint32 // never empty
	n      int
}

// block returns the index of the block for slot.
func (p *posting) block(slot uint32) int {
	if n := len(p.blocks); n == 0 || p.blocks[n-1][0] <= slot { // new slots are usually the highest
		return max(n-1, 0)
	}
	return max(sort.Search(len(p.blocks), func(i int) bool { return p.blocks[i][0] > slot })-1, 0)
}

func (p *posting) contains(slot uint32) bool {
	if p == nil || p.n == 0 {
		return false
	}
	_, found := slices.BinarySearch(p.blocks[p.block(slot)], slot)
	return found
}

func (p *posting) add(slot uint32) {
	if p.n == 0 {
		p.blocks = append(p.blocks[:0], []uint32{slot})
		p.n = 1
		return
	}
	b := p.block(slot)
	i, found := slices.BinarySearch(p.blocks[b], slot)
	if found {
		return
	}
	p.n++
	if len(p.blocks[b]) < blockSize {
		p.blocks[b] = slices.Insert(p.blocks[b], i, slot)
		return
	}
	if i == blockSize && b == len(p.blocks)-1 { // rising slots fill blocks completely
		p.blocks = append(p.blocks, append(make([]uint32, 0, 16), slot))
		return
	}
	half := p.blocks[b]
	p.blocks = slices.Insert(p.blocks, b+1, slices.Clone(half[blockSize/2:]))
	p.blocks[b] = half[:blockSize/2]
	if i > blockSize/2 {
		b, i = b+1, i-blockSize/2
	}
	p.blocks[b] = slices.Insert(p.blocks[b], i, slot)
}

func (p *posting) remove(slot uint32) {
	if p.n == 0 {
		return
	}
	b := p.block(slot)
	i, found := slices.BinarySearch(p.blocks[b], slot)
	if !found {
		return
	}
	p.n--
	p.blocks[b] = slices.Delete(p.blocks[b], i, i+1)
	if len(p.blocks[b]) == 0 {
		p.blocks = slices.Delete(p.blocks, b, b+1)
		return
	}
	if next := b + 1; next < len(p.blocks) && len(p.blocks[b])+len(p.blocks[next]) <= blockSize/2 {
		p.blocks[b] = append(p.blocks[b], p.blocks[next]...)
		p.blocks = slices.Delete(p.blocks, next, next+1)
	}
}

func (p *posting) appendTo(dst []uint32) []uint32 {
	if p == nil {
		return dst
	}
	for _, block := range p.blocks {
		dst = append(dst, block...)
	}
	return dst
}

func (p *posting) size() int {
	if p == nil {
		return 0
	}
	return p.n
}

// bytes returns the memory of the posting, without the struct itself.
func (p *posting) bytes() int64 {
	size := int64(cap(p.blocks)) * 24
	for _, block := range p.blocks {
		size += int64(cap(block)) * 4
	}
	return size
}

// inverted finds slots by terms, which are hashes. In some indexes most terms have only one object; these need no
// posting.
type inverted struct {
	singles map[uint64]uint32
	lists   map[uint64]*posting
}

func newInverted() *inverted {
	return &inverted{singles: map[uint64]uint32{}, lists: map[uint64]*posting{}}
}

func (x *inverted) add(term uint64, slot uint32) {
	if list := x.lists[term]; list != nil {
		list.add(slot)
		return
	}
	single, found := x.singles[term]
	if !found {
		x.singles[term] = slot
		return
	}
	if single == slot {
		return
	}
	list := &posting{}
	list.add(single)
	list.add(slot)
	x.lists[term] = list
	delete(x.singles, term)
}

func (x *inverted) remove(term uint64, slot uint32) {
	if list := x.lists[term]; list != nil {
		list.remove(slot)
		if list.n == 0 {
			delete(x.lists, term)
		}
		return
	}
	if single, found := x.singles[term]; found && single == slot {
		delete(x.singles, term)
	}
}

// of returns the slots of a term.
func (x *inverted) of(term uint64) set {
	if single, found := x.singles[term]; found {
		return one(single)
	}
	return x.lists[term]
}

// bytes estimates the memory of the index.
func (x *inverted) bytes() int64 {
	size := mapBytes(len(x.singles), 16) + mapBytes(len(x.lists), 16)
	for _, list := range x.lists {
		size += 32 + list.bytes()
	}
	return size
}

// mapBytes estimates a map's memory: entries of the given size with a control byte each, and room to grow.
func mapBytes(n, entry int) int64 { return int64(n) * int64(entry+1) * 3 / 2 }

// set is a set of slots.
type set interface {
	size() int
	contains(slot uint32) bool
	appendTo(dst []uint32) []uint32 // sorted
}

// one is a set of one slot.
type one uint32

func (o one) size() int                      { return 1 }
func (o one) contains(slot uint32) bool      { return slot == uint32(o) }
func (o one) appendTo(dst []uint32) []uint32 { return append(dst, uint32(o)) }

// union is the union of sets. They overlap only if hashes collide.
type union []set

func (u union) size() int {
	n := 0
	for _, s := range u {
		n += s.size()
	}
	return n
}

func (u union) contains(slot uint32) bool {
	return slices.ContainsFunc(u, func(s set) bool { return s.contains(slot) })
}

func (u union) appendTo(dst []uint32) []uint32 {
	begin := len(dst)
	for _, s := range u {
		dst = s.appendTo(dst)
	}
	slices.Sort(dst[begin:])
	return append(dst[:begin], slices.Compact(dst[begin:])...)
}
