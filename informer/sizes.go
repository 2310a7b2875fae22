package informer

import "fmt"

// Sizes is what an informer's objects cost at one moment. All figures are in bytes, but
// Objects and Dictionaries.
type Sizes struct {
	// Informer is the informer's name, Kind the kind of its objects.
	Informer string
	Kind     string
	Objects  int
	// Kept is what they take in memory: records, tables, indexes, dictionaries. An estimate.
	Kept int64
	// Encoded is what the objects' bytes are when they are not compressed, without what was
	// cut.
	Encoded int64
	// Dictionary is the part of Kept that compression needs, however many objects there are;
	// Dictionaries is how many have been built, because the objects had come to look different.
	Dictionary   int64
	Dictionaries int
	// Received is what has been read from the API server since the informer was made, where
	// the informer reads from one itself.
	Received int64
}

// Sizes returns what the informer's objects cost. It walks no objects.
func (i *Informer[T]) Sizes() Sizes {
	s := Sizes{Informer: i.core.name, Kind: i.core.kind.Kind, Received: i.core.counters.received.Load()}
	for _, p := range i.core.allParts() {
		kept := p.objects().Sizes()
		s.Objects += kept.Objects
		s.Kept += kept.Bytes
		s.Encoded += kept.Raw
		s.Dictionary += kept.Dictionary
		s.Dictionaries += kept.Generation
	}
	return s
}

// String returns the sizes in a line, for logs.
func (s Sizes) String() string {
	each := int64(0)
	if s.Objects > 0 {
		each = s.Kept / int64(s.Objects)
	}
	return fmt.Sprintf("%s: %d objects in %.1f MB, %d B each (%.1f MB as they are encoded, %.1f MB received)",
		s.Informer, s.Objects, megabytes(s.Kept), each, megabytes(s.Encoded), megabytes(s.Received))
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
