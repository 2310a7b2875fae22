package informer

import "fmt"

// Sizes is the memory use of an informer's cache at one time. All figures are in bytes, except Objects and
// Dictionaries.
type Sizes struct {
	// Informer is the informer's name. Kind is the kind of its objects.
	Informer string
	Kind     string
	Objects  int
	// Kept is the estimated memory use of the objects: records, tables, indexes, dictionaries.
	Kept int64
	// Encoded is the size of the objects' bytes without compression and without the fields that were cut.
	Encoded int64
	// Dictionary is the part of Kept that compression uses independently of the number of objects. Dictionaries is the
	// number of dictionaries that were built, because the shape of the objects changed.
	Dictionary   int64
	Dictionaries int
	// Received is the number of bytes read from the API server since New, if the informer reads them itself.
	Received int64
}

// Sizes returns the memory use of the cache. It does not iterate over the objects.
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

// String returns the sizes as one line, for logs.
func (s Sizes) String() string {
	each := int64(0)
	if s.Objects > 0 {
		each = s.Kept / int64(s.Objects)
	}
	return fmt.Sprintf("%s: %d objects in %.1f MB, %d B each (%.1f MB as they are encoded, %.1f MB received)",
		s.Informer, s.Objects, megabytes(s.Kept), each, megabytes(s.Encoded), megabytes(s.Received))
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }
