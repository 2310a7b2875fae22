package wire

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
)

// place is the end of a partial path: the Go type (nil if unknown), and the nodes of both formats (proto is nil for
// fields without protobuf encoding).
type place struct {
	t     reflect.Type
	json  *jsonNode
	proto *protoNode
}

// step moves to the field or map entry with this name.
func (p place) step(name string) (place, error) {
	next := place{json: p.json.add(name)}
	if p.t == nil {
		return next, nil
	}
	t, fields, err := apiobject.StepField(p.t, name)
	if err != nil {
		return next, err
	}
	next.t = t
	if p.proto != nil && fields == nil {
		next.proto = p.proto.entry(name, apiobject.ElementType(t))
		return next, nil
	}
	// An embedded struct is one more step in protobuf, because it is a message there.
	node := p.proto
	for _, field := range fields {
		number := protoNumber(field)
		if node == nil || number == 0 {
			node = nil
			break
		}
		node = node.add(number)
		node.maps = mapFields(apiobject.ElementType(field.Type))
	}
	next.proto = node
	return next, nil
}

func newProtoNode(t reflect.Type) *protoNode { return &protoNode{maps: mapFields(t)} }

// entry returns the node for one entry of the map n.
func (n *protoNode) entry(key string, value reflect.Type) *protoNode {
	if n.keys == nil {
		n.keys = map[string]*protoNode{}
	}
	if n.keys[key] == nil {
		n.keys[key] = newProtoNode(value)
	}
	return n.keys[key]
}

// mapFields returns the numbers of the map fields of t.
func mapFields(t reflect.Type) (nums []int32) {
	if t.Kind() != reflect.Struct {
		return nil
	}
	for f := range t.Fields() {
		if num := protoNumber(f); num != 0 && f.Type.Kind() == reflect.Map {
			nums = append(nums, num)
		}
	}
	return nums
}

// protoNumber returns the protobuf number of a field, or 0.
func protoNumber(f reflect.StructField) int32 {
	_, rest, _ := strings.Cut(f.Tag.Get("protobuf"), ",")
	number, _, _ := strings.Cut(rest, ",")
	num, _ := strconv.ParseInt(number, 10, 32) // zero without a number
	return int32(num)
}
