package main

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"
)

// stratum is the mutants of one package and operator in the order in which they are tried.
type stratum struct {
	Package, Operator string
	mutants           []*mutant
	take              int // how many of them the sample has
}

// rank orders mutants at random. It depends on the seed and the mutant's ID only, so that an edit elsewhere does not
// draw another sample.
func rank(seed uint64, m *mutant) uint64 {
	sum := sha256.Sum256(fmt.Appendf(nil, "%d %s", seed, m.ID))
	return binary.BigEndian.Uint64(sum[:8])
}

// sample divides n over the packages by their number of mutants, and a package's share evenly over its operators. A
// package gets at least a quarter of an even share, if it has that many mutants.
func sample(mutants []*mutant, n int, seed uint64) []*stratum {
	byPackage := map[string]map[string]*stratum{}
	sizes := map[string]int{}
	for _, m := range mutants {
		strata := byPackage[m.Package]
		if strata == nil {
			strata = map[string]*stratum{}
			byPackage[m.Package] = strata
		}
		if strata[m.Operator] == nil {
			strata[m.Operator] = &stratum{Package: m.Package, Operator: m.Operator}
		}
		strata[m.Operator].mutants = append(strata[m.Operator].mutants, m)
		sizes[m.Package]++
	}
	shares := divide(n, sizes)
	var all []*stratum
	for name, strata := range byPackage {
		var ofPackage []*stratum
		for _, s := range strata {
			slices.SortFunc(s.mutants, func(a, b *mutant) int {
				return cmp.Or(cmp.Compare(rank(seed, a), rank(seed, b)), cmp.Compare(a.ID, b.ID))
			})
			ofPackage = append(ofPackage, s)
		}
		slices.SortFunc(ofPackage, func(a, b *stratum) int { return cmp.Compare(a.Operator, b.Operator) })
		// Give each operator one in turn, until the share is used up.
		for left := shares[name]; left > 0; {
			for _, s := range ofPackage {
				if left > 0 && s.take < len(s.mutants) {
					s.take++
					left--
				}
			}
		}
		all = append(all, ofPackage...)
	}
	slices.SortFunc(all, func(a, b *stratum) int {
		return cmp.Or(cmp.Compare(a.Package, b.Package), cmp.Compare(a.Operator, b.Operator))
	})
	return all
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
