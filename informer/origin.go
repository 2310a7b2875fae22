package informer

// origin is the way in which an object arrived.
type origin int

const (
	// fromList: an item of a list. Items are in no particular order.
	fromList origin = iota
	// fromWatch: an event in the order of resource versions. All earlier events have arrived.
	fromWatch
	// fromStart: an event of a watch that starts with the present objects, in no particular order.
	fromStart
	// unbroken: as fromWatch, by a watch from a version up to which everything had arrived, and not a creation. So all
	// states since the cached one have arrived.
	unbroken
)

// inOrder reports whether all earlier changes have arrived.
func (o origin) inOrder() bool { return o == fromWatch || o == unbroken }
