package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// rank orders mutants at random. It depends on the seed and the mutant's ID only, so that an edit elsewhere does not
// draw another sample.
func rank(seed uint64, m *mutant) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.ID))
	return binary.BigEndian.Uint64(sum[:8])
}

// sample divides n over the packages by their number of mutants, and a package's share evenly over its operators, and
// returns the mutants in random order. A package gets at least a quarter of an even share, if it has that many mutants.
func sample(mutants []*mutant, n int, seed uint64) []*mutant {
	byRank := func(a, b *mutant) int {
		return cmp.Or(cmp.Compare(rank(seed, a), rank(seed, b)), cmp.Compare(a.ID, b.ID))
	}
	byPackage := map[string]map[string][]*mutant{} // and operator
	sizes := map[string]int{}
	for _, m := range slices.SortedFunc(slices.Values(mutants), byRank) {
		if byPackage[m.Package] == nil {
			byPackage[m.Package] = map[string][]*mutant{}
		}
		byPackage[m.Package][m.Operator] = append(byPackage[m.Package][m.Operator], m)
		sizes[m.Package]++
	}
	var drawn []*mutant
	for name, share := range divide(n, sizes) {
		// Give each operator one in turn, until the share is used up.
		ofPackage := byPackage[name]
		for share > 0 {
			for _, operator := range slices.Sorted(maps.Keys(ofPackage)) {
				if left := ofPackage[operator]; share > 0 && len(left) > 0 {
					drawn = append(drawn, left[0])
					ofPackage[operator] = left[1:]
					share--
				}
			}
		}
	}
	slices.SortFunc(drawn, byRank)
	return drawn
}

// divide gives each package at most its size: first the minimum, then one at a time to the package
// with the smallest part of its mutants in the sample.
func divide(n int, sizes map[string]int) map[string]int {
	names := make([]string, 0, len(sizes))
	total := 0
	for name, size := range sizes {
		names = append(names, name)
		total += size
	}
	slices.Sort(names)
	n = min(n, total)
	shares := map[string]int{}
	least := max(1, n/(4*max(1, len(names))))
	given := 0
	for _, name := range names {
		shares[name] = min(sizes[name], least, n-given)
		given += shares[name]
	}
	for ; given < n; given++ {
		next := slices.MinFunc(names, func(a, b string) int {
			return cmp.Compare(float64(shares[a])/float64(sizes[a]), float64(shares[b])/float64(sizes[b]))
		})
		shares[next]++
	}
	return shares
}
