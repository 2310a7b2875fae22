package main

import (
	"fmt"
	"testing"
)

func manyMutants(sizes map[string]int) []*mutant {
	operators := []string{opNegate, opBoundary, opLogic}
	var all []*mutant
	for name, size := range sizes {
		for i := range size {
			all = append(all, &mutant{ID: fmt.Sprintf("%s-%d", name, i), Package: name, Operator: operators[i%3]})
		}
	}
	return all
}

func draw(mutants []*mutant, n int, seed uint64) (ids map[string]bool, perPackage, perStratum map[string]int) {
	ids, perPackage, perStratum = map[string]bool{}, map[string]int{}, map[string]int{}
	for _, m := range sample(mutants, n, seed) {
		ids[m.ID] = true
		perPackage[m.Package]++
		perStratum[m.Package+" "+m.Operator]++
	}
	return ids, perPackage, perStratum
}

func TestSampleDividesOverPackagesAndOperators(t *testing.T) {
	t.Parallel()
	ids, perPackage, perStratum := draw(manyMutants(map[string]int{"large": 900, "small": 90, "tiny": 3}), 100, 1)
	if len(ids) != 100 {
		t.Errorf("the sample has %d mutants", len(ids))
	}
	if perPackage["large"] < 85 || perPackage["small"] < 8 || perPackage["tiny"] != 3 {
		t.Errorf("shares of packages: %v", perPackage)
	}
	if a, b := perStratum["large "+opNegate], perStratum["large "+opLogic]; a-b > 1 || b-a > 1 {
		t.Errorf("shares of operators: %v", perStratum)
	}
}

func TestSampleOfSmallPopulationIsComplete(t *testing.T) {
	t.Parallel()
	if ids, _, _ := draw(manyMutants(map[string]int{"a": 4, "b": 2}), 100, 1); len(ids) != 6 {
		t.Errorf("the sample has %v", ids)
	}
}

func TestSampleDependsOnSeed(t *testing.T) {
	t.Parallel()
	population := map[string]int{"a": 500}
	first, _, _ := draw(manyMutants(population), 50, 1)
	second, _, _ := draw(manyMutants(population), 50, 1)
	other, _, _ := draw(manyMutants(population), 50, 2)
	same := func(x, y map[string]bool) int {
		n := 0
		for id := range x {
			if y[id] {
				n++
			}
		}
		return n
	}
	if same(first, second) != 50 || same(first, other) > 25 {
		t.Errorf("the same seed has %d of 50 in common, another seed %d", same(first, second), same(first, other))
	}
}

func TestSampleIsStable(t *testing.T) {
	t.Parallel()
	before, _, _ := draw(manyMutants(map[string]int{"a": 500}), 50, 1)
	after, _, _ := draw(manyMutants(map[string]int{"a": 501}), 50, 1)
	common := 0
	for id := range before {
		if after[id] {
			common++
		}
	}
	if common < 48 {
		t.Errorf("only %d of 50 mutants are in both samples", common)
	}
}
