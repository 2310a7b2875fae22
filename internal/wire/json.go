package wire

import (
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonNode defines the fields to cut from one JSON object. Arrays are transparent.
type jsonNode struct {
	remove bool
	// applier is only set for managedFields. It is the manager of the entry that is kept; see applied.go.
	applier string
	fields  []jsonChild
}

type jsonChild struct {
	name string
	node *jsonNode
}

func (n *jsonNode) child(name []byte) *jsonNode {
	if n == nil {
		return nil
	}
	for i := range n.fields {
		if n.fields[i].name == string(name) {
			return n.fields[i].node
		}
	}
	return nil
}

// add returns the child with this name, and creates it if necessary.
func (n *jsonNode) add(name string) *jsonNode {
	if c := n.child([]byte(name)); c != nil {
		return c
	}
	c := &jsonNode{}
	n.fields = append(n.fields, jsonChild{name, c})
	return c
}

// parseJSON parses data, which is one object.
func (p *parser) parseJSON(data []byte) error {
	s := scanner{data: data}
	s.space()
	p.scanObject(&s)
	return s.endOfData()
}

// jsonObject is the result of one pass over an object.
type jsonObject struct {
	*parser
	s *scanner
	// metadata is the number of members with that name; seen has a bit for each of its fields.
	metadata int
	seen     uint8
	// ambiguous is true if the typed and the unstructured decoder may read the object differently.
	ambiguous bool
	writer    lastWriter
}

// scanObject reads the object at s.i, without surrounding space.
func (p *parser) scanObject(s *scanner) {
	start := s.i
	p.obj = Object{Format: JSON}
	s.begin(p.room(len(s.data) - s.i))
	o := jsonObject{parser: p, s: s}
	var root *jsonNode
	if p.cut != nil {
		root = p.cut.json
	}
	o.root(root)
	if s.err != nil {
		return
	}
	p.obj.Bytes = s.finish(start)
	p.buf = s.dst
	p.obj.Manager, p.obj.TiedManager = p.names.intern(o.writer.name), p.names.intern(o.writer.tied)
	if !o.ambiguous {
		return
	}
	meta, err := decodeJSONMetadata(p.obj.Bytes)
	if err != nil {
		s.failWith(err)
		return
	}
	p.obj.setMetadata(meta)
}

// key returns the decoded key.
func (s *scanner) key(t text) []byte {
	raw := s.data[t.start:t.end]
	if t.plain {
		return raw
	}
	var decoded string
	if err := utiljson.Unmarshal(s.data[t.start-1:t.end+1], &decoded); err != nil {
		return raw
	}
	return []byte(decoded)
}

// object scans an object, removes the fields in node, and calls use for every member that is kept. use must skip the
// member's value.
func (s *scanner) object(node *jsonNode, use func(key []byte, child *jsonNode)) {
	s.objectCutting(node, use, func([]byte, *jsonNode) []byte {
		s.skip()
		return nil
	})
}

// objectCutting is like object, and calls cut for every member that is removed. cut must skip the member's value. If it
// returns a value, that is kept as the member nameApplied.
func (s *scanner) objectCutting(
	node *jsonNode, use func(key []byte, child *jsonNode), cut func(key []byte, child *jsonNode) (kept []byte),
) {
	for m := (members{}); s.next(&m); {
		key := s.key(m.key)
		child := node.child(key)
		if child == nil || !child.remove {
			s.keep(&m)
			use(key, child)
		} else if kept := cut(key, child); kept != nil {
			s.replace(&m, nameApplied, kept)
		} else {
			s.remove(&m)
		}
	}
}

// value skips a value, and removes the fields in node, in every element of an array.
func (s *scanner) value(node *jsonNode) {
	c := s.peek()
	switch {
	case node != nil && c == '{':
		s.object(node, func(_ []byte, child *jsonNode) { s.value(child) })
	case node != nil && c == '[':
		for e := (members{}); s.element(&e); {
			s.value(node)
		}
	default:
		s.skip()
	}
}

func (o *jsonObject) root(node *jsonNode) {
	o.s.object(node, func(key []byte, child *jsonNode) {
		if string(key) == "metadata" {
			o.metadata++
			if o.metadata == 1 && o.s.peek() == '{' {
				o.s.objectCutting(child, o.meta, o.cutMeta)
				return
			}
			o.ambiguous = true
		}
		o.s.value(child)
	})
}

// nameManagedFields is the JSON name of that metadata field.
const nameManagedFields = "managedFields"

// cutMeta skips a metadata field that is cut. For managedFields it returns the entry to keep.
func (o *jsonObject) cutMeta(key []byte, child *jsonNode) (kept []byte) {
	if string(key) == nameManagedFields {
		return o.writer.json(o.s, child.applier)
	}
	o.s.skip()
	return nil
}

// meta reads one field of the metadata.
func (o *jsonObject) meta(key []byte, child *jsonNode) {
	const namespace, generation, deletion = 2, 16, 32
	var bit uint8
	var text *string
	switch string(key) {
	case "name":
		bit, text = 1, &o.obj.Key.Name
	case "namespace":
		bit, text = namespace, &o.obj.Key.Namespace
	case "uid":
		bit, text = 4, (*string)(&o.obj.UID)
	case "resourceVersion":
		bit, text = 8, &o.obj.ResourceVersion
	case "generation":
		bit = generation
	case "deletionTimestamp":
		bit = deletion
	case nameManagedFields:
		if child == nil {
			o.writer.json(o.s, "")
			return
		}
		o.s.value(child) // something within the field is cut
		return
	default:
		o.s.value(child)
		return
	}
	o.ambiguous = o.ambiguous || o.seen&bit != 0
	o.seen |= bit
	if o.s.peek() != '"' {
		o.metaNumber(bit == generation)
		return
	}
	t := o.s.str()
	content := o.s.data[t.start:t.end]
	switch {
	case !t.plain || bit == generation:
		o.ambiguous = true
	case bit == deletion:
		o.obj.Deleting = true
		o.ambiguous = o.ambiguous || !plainTime(content)
	case bit == namespace:
		*text = o.names.intern(content)
	default:
		*text = string(content)
	}
}

// metaNumber reads a value of the metadata that is not a string.
func (o *jsonObject) metaNumber(isGeneration bool) {
	content := string(o.s.raw())
	if isGeneration {
		n, err := strconv.ParseInt(content, 10, 64)
		o.obj.Generation = n
		o.ambiguous = o.ambiguous || err != nil
		return
	}
	// Null is the same as a missing field for both decoders.
	o.ambiguous = o.ambiguous || content != "null"
}

// plainTime reports whether a time has the format of API servers, 2006-01-02T15:04:05Z, and is certainly valid.
func plainTime(b []byte) bool {
	if !shapedLikeTime(b) || b[0] == '0' {
		return false
	}
	two := func(i int) int { return int(b[i]-'0')*10 + int(b[i+1]-'0') }
	return two(5) >= 1 && two(5) <= 12 && two(8) >= 1 && two(8) <= 28 && two(11) < 24 && two(14) < 60 && two(17) < 60
}

// shapedLikeTime reports whether a time has the shape of the API servers' format.
func shapedLikeTime(b []byte) bool {
	const layout = "dddd-dd-ddTdd:dd:ddZ"
	if len(b) != len(layout) {
		return false
	}
	for i, c := range b {
		if layout[i] == 'd' && (c < '0' || c > '9') || layout[i] != 'd' && c != layout[i] {
			return false
		}
	}
	return true
}

// decodeJSONMetadata decodes the metadata with Kubernetes' decoders. There are two, for typed and for unstructured
// objects. If one of them fails, the result of the other one is used. If their results differ, it returns an error.
func decodeJSONMetadata(data []byte) (*metav1.ObjectMeta, error) {
	var typed metav1.PartialObjectMetadata
	var loose unstructured.Unstructured
	typedErr := utiljson.Unmarshal(data, &typed)
	looseErr := utiljson.Unmarshal(data, &loose.Object)
	switch {
	case typedErr != nil && looseErr != nil:
		return nil, fmt.Errorf("decode metadata: %w", typedErr)
	case typedErr != nil:
		return looseMetadata(&loose), nil //nolint:nilerr // the other decoder accepts it
	case looseErr != nil:
		return &typed.ObjectMeta, nil //nolint:nilerr // the other decoder accepts it
	}
	var a, b Object
	a.setMetadata(&typed.ObjectMeta)
	b.setMetadata(looseMetadata(&loose))
	if a.Key != b.Key || a.UID != b.UID || a.ResourceVersion != b.ResourceVersion || a.Generation != b.Generation ||
		a.Deleting != b.Deleting {
		return nil, errors.New("ambiguous metadata: typed and unstructured decoders read it differently, most often " +
			"because of a duplicate key")
	}
	return &typed.ObjectMeta, nil
}

func looseMetadata(u *unstructured.Unstructured) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{
		Name:              u.GetName(),
		Namespace:         u.GetNamespace(),
		UID:               u.GetUID(),
		ResourceVersion:   u.GetResourceVersion(),
		Generation:        u.GetGeneration(),
		DeletionTimestamp: u.GetDeletionTimestamp(),
		Labels:            u.GetLabels(),
		Annotations:       u.GetAnnotations(),
		OwnerReferences:   u.GetOwnerReferences(),
		Finalizers:        u.GetFinalizers(),
	}
}
