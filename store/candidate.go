package store

import (
	"encoding/binary"

	"github.com/klauspost/compress/s2"
)

const (
	// Samples in which less than 1/novelShare is new teach a dictionary nothing.
	novelShare = 5
	// novelGap is how many known bytes between new ones are taken along: S2 copies one
	// long part in less space than many short ones.
	novelGap = 64
	// gram is the number of bytes that are known or new together.
	gram = 8
)

// newDictionary makes a dictionary of up to size bytes from samples.
//
// A dictionary is short, and objects are much like one another, so it takes from each
// sample what those before it did not have. Measured with Pods of 40 workloads, of
// which whole samples would fill a dictionary with 32, this saves a fifth.
// What room is left is filled with whole samples.
func newDictionary(samples [][]byte, size int) *dictionary {
	content := make([]byte, 0, size+maxSample)
	known := &grams{}
	for _, b := range samples {
		if len(content) < size && known.missing(b) {
			content = known.appendNew(content, b)
			known.learn(b)
		}
	}
	for _, b := range samples {
		if len(content) < size {
			content = append(content, b...)
		}
	}
	content = content[:min(len(content), size)]
	content = append(make([]byte, 0, len(content)+16), content...) // as S2 wants it
	d := s2.MakeDict(content, samples[0][:min(16, len(samples[0]))])
	if d == nil { // it is too short to be one
		return nil
	}
	return &dictionary{s2: d, size: len(content)}
}

// grams is a set of grams. It may take a few new ones for known.
type grams [1 << 14]uint64

func (g *grams) bit(b []byte) (word *uint64, mask uint64) {
	hash := binary.LittleEndian.Uint64(b) * 0x9e3779b97f4a7c15
	return &g[hash>>50], 1 << (hash >> 44 & 63)
}

func (g *grams) has(b []byte) bool {
	word, mask := g.bit(b)
	return *word&mask != 0
}

func (g *grams) learn(b []byte) {
	for i := 0; i+gram <= len(b); i++ {
		word, mask := g.bit(b[i:])
		*word |= mask
	}
}

// missing says whether enough of b is new.
func (g *grams) missing(b []byte) bool {
	unknown := 0
	for i := 0; i+gram <= len(b); i += 4 {
		if !g.has(b[i:]) {
			unknown++
		}
	}
	return unknown*4*novelShare >= len(b)
}

// appendNew appends the parts of b that are new, with a little of what is around them.
func (g *grams) appendNew(dst, b []byte) []byte {
	begin, end := 0, 0 // of the part that is being gathered
	for i := 0; i+gram <= len(b); i++ {
		if g.has(b[i:]) {
			continue
		}
		if end == 0 || i > end+novelGap {
			dst = append(dst, b[begin:end]...)
			begin = max(i-gram/2, 0)
		}
		end = i + gram
	}
	return append(dst, b[begin:end]...)
}
