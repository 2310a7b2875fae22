package simulation

import (
	"fmt"
	"maps"
	"slices"
)

// reference is what the runs without faults have in common.
type reference struct {
	ends []state
	// free are the fields of objects that differ between these runs, by object; the path "" is the object itself. The
	// value is true if a run lacks the field.
	free map[string]map[string]bool
	// unfinished are the deleted objects that exist when a step begins.
	unfinished map[int]map[objectID]bool
	// created is how often the objects are created that each of the runs creates: the largest number.
	created map[objectID]int
	// deleted is how often the programs delete an object, at least once if they try to: the largest number.
	deleted map[objectID]int
	// named are the kinds with objects that exist in a part of these runs only: their names are chosen at random. Only
	// their number is compared.
	named map[string]bool
}

func newReference(runs []*outcome) *reference {
	r := &reference{
		free: map[string]map[string]bool{}, created: map[objectID]int{}, deleted: map[objectID]int{},
		named: map[string]bool{}, unfinished: map[int]map[objectID]bool{},
	}
	for n, o := range runs {
		r.ends = append(r.ends, o.end)
		for _, d := range differences(runs[0].end, o.end) {
			if r.free[d.object] == nil {
				r.free[d.object] = map[string]bool{}
			}
			r.free[d.object][d.path] = r.free[d.object][d.path] || d.want == "" || d.got == ""
			if d.path == "" {
				r.named[kindIn(d.object)] = true
			}
		}
		created := creations(o)
		if n == 0 {
			r.created = created
		}
		for id := range r.created {
			if created[id] == 0 {
				delete(r.created, id)
			} else {
				r.created[id] = max(r.created[id], created[id])
			}
		}
		deleted := map[objectID]int{}
		for _, d := range deletions(o) {
			if d.succeeded {
				deleted[d.objectID]++
			}
			r.deleted[d.objectID] = max(r.deleted[d.objectID], deleted[d.objectID], 1)
		}
		for step, ids := range o.unfinished {
			if r.unfinished[step] == nil {
				r.unfinished[step] = map[objectID]bool{}
			}
			maps.Copy(r.unfinished[step], ids)
		}
	}
	return r
}

// whyImpossible returns why a run shows nothing, or "".
func (r *reference) whyImpossible(o *outcome) string {
	for step, ids := range o.unfinished {
		for id := range ids {
			if !r.unfinished[step][id] {
				return fmt.Sprintf("step %d came before the end of the deletion of %s %s, for which a user waits", step,
					id.resource, id.key)
			}
		}
	}
	return o.impossible
}

func creations(o *outcome) map[objectID]int {
	created := map[objectID]int{}
	for _, c := range o.changes {
		if c.created {
			created[c.objectID]++
		}
	}
	return created
}

// deletion is the attempt of a program to delete an object.
type deletion struct {
	objectID
	program   string
	succeeded bool
}

// deletions returns the deletions by the programs.
func deletions(o *outcome) (all []deletion) {
	for _, r := range o.requests {
		if r.instance == nil || r.Subresource != "" || r.DryRun {
			continue
		}
		resource := r.Resource.GroupResource()
		switch r.Verb {
		case "delete":
			all = append(all, deletion{objectID{resource, r.Key}, r.instance.program, r.Status/100 == 2})
		case "deletecollection":
			for _, c := range o.changes {
				if c.deleted && c.resource == resource && c.time.Equal(r.Time) &&
					(r.Key.Namespace == "" || r.Key.Namespace == c.key.Namespace) {
					all = append(all, deletion{c.objectID, r.instance.program, true})
				}
			}
		}
	}
	return all
}

// compareEnd returns the differences of a state from the nearest end without faults.
func (r *reference) compareEnd(got state) (nearest []difference) {
	for i, end := range r.ends {
		found := slices.DeleteFunc(differences(end, got), func(d difference) bool {
			if r.free[d.object][""] {
				return true
			}
			if d.path == "" {
				kind := kindIn(d.object)
				return r.named[kind] && !r.isCommon(d.object) && r.countNamed(end, kind) == r.countNamed(got, kind)
			}
			canLack, isFree := r.free[d.object][d.path]
			return isFree && (canLack || d.want != "" && d.got != "")
		})
		if i == 0 || len(found) < len(nearest) {
			nearest = found
		}
	}
	return nearest
}

// isCommon reports whether all runs without faults have an object.
func (r *reference) isCommon(object string) bool {
	return !slices.ContainsFunc(r.ends, func(end state) bool { return end[object] == nil })
}

// countNamed returns the number of objects of a kind that not all runs without faults have.
func (r *reference) countNamed(s state, kind string) (n int) {
	for object := range s {
		if kindIn(object) == kind && !r.isCommon(object) {
			n++
		}
	}
	return n
}

// judge returns the first rule that a run broke, or nil. The end is compared if the scenario has no Finally.
func (r *reference) judge(o *outcome, compareEnds bool) *violation {
	all := slices.Clone(o.violations)
	if v := r.replaced(o); v != nil {
		all = append(all, *v)
	}
	if compareEnds && o.end != nil {
		if found := r.compareEnd(o.end); len(found) > 0 {
			all = append(all, violation{ruleEnd, found[0].object, found[0].String()})
		}
	}
	if len(all) == 0 {
		return nil
	}
	first := slices.MinFunc(all, func(a, b violation) int { return a.rule.order() - b.rule.order() })
	return &first
}

// replaced returns a violation if a program deleted an object that was then created again: what it held is lost, also
// if the end is the same.
func (r *reference) replaced(o *outcome) *violation {
	created, deleted := creations(o), map[objectID]int{}
	for _, d := range deletions(o) {
		if !d.succeeded {
			continue
		}
		deleted[d.objectID]++
		usual := r.created[d.objectID]
		if deleted[d.objectID] > r.deleted[d.objectID] && usual > 0 && created[d.objectID] > usual {
			name := d.resource.String() + " " + d.key.String()
			return &violation{ruleDeletion, name, fmt.Sprintf(
				"%s deleted %s, which was created again, more often than in runs without faults", d.program, name)}
		}
	}
	return nil
}
