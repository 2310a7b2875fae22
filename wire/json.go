package wire

import (
	"errors"
	"fmt"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// jsonNode says what is cut from one JSON object. Arrays are passed through.
type jsonNode struct {
	remove bool
	fields []jsonChild
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

// add returns the child name, which it makes where there is none yet.
func (n *jsonNode) add(name string) *jsonNode {
	if c := n.child([]byte(name)); c != nil {
		return c
	}
	c := &jsonNode{}
	n.fields = append(n.fields, jsonChild{name, c})
	return c
}

// parseJSON reads an object that is all of data.
func (p *parser) parseJSON(data []byte) error {
	s := scanner{data: data}
	s.space()
	if err := p.scanObject(&s); err != nil {
		return err
	}
	return s.endOfData()
}

// jsonObject is what one pass over an object has found.
type jsonObject struct {
	*parser
	s *scanner
	// metadata counts the objects of that name; seen are the bits of the fields in it.
	metadata int
	seen     uint8
	// odd is set by what the typed and the unstructured decoder may see differently.
	odd    bool
	writer lastWriter
}

// scanObject reads the object at s.i, without the space around it.
func (p *parser) scanObject(s *scanner) error {
	start := s.i
	p.obj = Object{Format: JSON}
	s.begin(p.room(len(s.data) - s.i))
	o := jsonObject{parser: p, s: s}
	var root *jsonNode
	if p.cut != nil {
		root = p.cut.json
	}
	if err := o.root(root); err != nil {
		return err
	}
	p.obj.Bytes = s.finish(start)
	p.buf = s.dst
	p.obj.Manager = p.names.intern(o.writer.name)
	if !o.odd {
		return nil
	}
	meta, err := decodeJSONMetadata(p.obj.Bytes)
	if err != nil {
		return err
	}
	p.obj.setMetadata(meta)
	return nil
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

// object passes an object, cuts what node says, and gives every member that stays to
// use, which passes its value.
func (s *scanner) object(node *jsonNode, use func(key []byte, child *jsonNode) error) error {
	return s.objectCutting(node, use, func([]byte) error { return s.skip() })
}

// objectCutting is object, and gives every member that is cut to cut, which passes its value.
func (s *scanner) objectCutting(node *jsonNode, use func(key []byte, child *jsonNode) error, cut func(key []byte) error) error {
	var m members
	for {
		t, more, err := s.next(&m)
		if err != nil || !more {
			return err
		}
		key := s.key(t)
		child := node.child(key)
		if child != nil && child.remove {
			if err := cut(key); err != nil {
				return err
			}
			s.remove(&m)
			continue
		}
		s.keep(&m)
		if err := use(key, child); err != nil {
			return err
		}
	}
}

// value passes a value, and cuts what node says, in every element of an array.
func (s *scanner) value(node *jsonNode) error {
	if node == nil {
		return s.skip()
	}
	switch s.peek() {
	case '{':
		return s.object(node, func(_ []byte, child *jsonNode) error { return s.value(child) })
	case '[':
		var e members
		for {
			if more, err := s.element(&e); err != nil || !more {
				return err
			}
			if err := s.value(node); err != nil {
				return err
			}
		}
	default:
		return s.skip()
	}
}

func (o *jsonObject) root(node *jsonNode) error {
	return o.s.object(node, func(key []byte, child *jsonNode) error {
		if string(key) != "metadata" {
			return o.s.value(child)
		}
		o.metadata++
		switch {
		case o.metadata > 1:
			o.odd = true
			return o.s.value(child)
		case o.s.peek() == '{':
			return o.s.objectCutting(child, o.meta, o.cutMeta)
		default:
			o.odd = true
			return o.s.value(child)
		}
	})
}

// nameManagedFields is the name of that field of the metadata.
const nameManagedFields = "managedFields"

// cutMeta passes a field of the metadata that is cut.
func (o *jsonObject) cutMeta(key []byte) error {
	if string(key) == nameManagedFields {
		return o.writer.json(o.s)
	}
	return o.s.skip()
}

// meta reads one field of the metadata.
func (o *jsonObject) meta(key []byte, child *jsonNode) error {
	var bit uint8
	switch string(key) {
	case "name":
		bit = 1
	case "namespace":
		bit = 2
	case "uid":
		bit = 4
	case "resourceVersion":
		bit = 8
	case "generation":
		bit = 16
	case "deletionTimestamp":
		bit = 32
	case nameManagedFields:
		if child != nil { // something within them is cut
			return o.s.value(child)
		}
		return o.writer.json(o.s)
	default:
		return o.s.value(child)
	}
	if o.seen&bit != 0 {
		o.odd = true
	}
	o.seen |= bit
	start := o.s.i
	if o.s.peek() == '"' {
		t, err := o.s.str()
		if err != nil {
			return err
		}
		content := o.s.data[t.start:t.end]
		switch {
		case !t.plain || bit == 16:
			o.odd = true
		case bit == 1:
			o.obj.Key.Name = string(content)
		case bit == 2:
			o.obj.Key.Namespace = o.names.intern(content)
		case bit == 4:
			o.obj.UID = types.UID(content)
		case bit == 8:
			o.obj.ResourceVersion = string(content)
		case bit == 32:
			o.obj.Deleting = true
			o.odd = o.odd || !plainTime(content)
		}
		return nil
	}
	if err := o.s.skip(); err != nil {
		return err
	}
	content := string(o.s.data[start:o.s.i])
	if bit == 16 {
		n, err := strconv.ParseInt(content, 10, 64)
		o.obj.Generation = n
		o.odd = o.odd || err != nil
		return nil
	}
	// Null is the same as nothing for both decoders.
	o.odd = o.odd || content != "null"
	return nil
}

// plainTime is true for times as API servers write them, 2006-01-02T15:04:05Z, that
// are surely valid.
func plainTime(b []byte) bool {
	if !shapedLikeTime(b) || b[0] == '0' {
		return false
	}
	two := func(i int) int { return int(b[i]-'0')*10 + int(b[i+1]-'0') }
	return two(5) >= 1 && two(5) <= 12 && two(8) >= 1 && two(8) <= 28 && two(11) < 24 && two(14) < 60 && two(17) < 60
}

// shapedLikeTime is true for what looks like a time that an API server wrote.
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

// decodeJSONMetadata reads the metadata as the decoders of Kubernetes do. There are two,
// for typed and for unstructured objects; where one refuses an object the other counts,
// and where they see different objects there is nothing to rely on.
func decodeJSONMetadata(data []byte) (*metav1.ObjectMeta, error) {
	var typed metav1.PartialObjectMetadata
	var loose unstructured.Unstructured
	typedErr := utiljson.Unmarshal(data, &typed)
	looseErr := utiljson.Unmarshal(data, &loose.Object)
	switch {
	case typedErr != nil && looseErr != nil:
		return nil, fmt.Errorf("decode metadata: %w", typedErr)
	case typedErr != nil:
		return looseMetadata(&loose), nil //nolint:nilerr // the other decoder takes it
	case looseErr != nil:
		return &typed.ObjectMeta, nil //nolint:nilerr // the other decoder takes it
	}
	var a, b Object
	a.setMetadata(&typed.ObjectMeta)
	b.setMetadata(looseMetadata(&loose))
	if a.Key != b.Key || a.UID != b.UID || a.ResourceVersion != b.ResourceVersion || a.Generation != b.Generation || a.Deleting != b.Deleting {
		return nil, errors.New("ambiguous metadata: typed and unstructured decoders read it differently, most often because a key is there twice")
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
