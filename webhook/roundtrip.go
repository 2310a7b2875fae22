package webhook

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	kjson "sigs.k8s.io/json"

	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// RoundTrips configures CheckRoundTrips. The zero value of each field is its default.
type RoundTrips struct {
	// Adjust makes a filled object valid, for example by setting a field to one of a few values. Default: none.
	Adjust func(kube.Object)
	// Lossy are paths of fields, such as "spec.host", that may change, with everything below them. Items of lists have
	// the index [] in paths. Default: none.
	Lossy []string
}

// CheckRoundTrips fills 200 objects of each version of a hook that Converting returned, converts each to the hub and
// back, and hubs to each other version and back. The error names each field that is lost, added or changed, with an
// example, and the conversions that failed or panicked. It is for tests.
//
// The first object of a version has a value in each field, others have values in some. Labels, annotations and all
// fields of the Go types are filled; a type with its own JSON encoding is filled if it is of k8s.io/apimachinery or
// encodes the values of its Go type, and stays empty otherwise.
func CheckRoundTrips(hook Hook, options RoundTrips) error {
	c, ok := hook.protocol.(conversion)
	if !ok || c.versions == nil {
		return errors.New("check round trips: the hook has no conversion with Go types: use Converting")
	}
	invalid := slices.Clone(c.errs)
	for _, v := range c.versions {
		if empty := v.empty(); metaOf(empty) == nil {
			invalid = append(invalid, fmt.Errorf("%T does not embed metav1.ObjectMeta", empty))
		}
	}
	if err := errors.Join(invalid...); err != nil {
		return fmt.Errorf("check round trips of %s: %w", c.name, err)
	}
	const objects = 200
	hub := &c.versions[0]
	var errs []error
	for i := range c.versions[1:] {
		spoke := &c.versions[i+1]
		for _, way := range [][2]*version{{hub, spoke}, {spoke, hub}} {
			trip := &roundTrip{from: way[0], by: way[1], hub: hub, lossy: options.Lossy, found: map[string]string{}}
			for n := range objects {
				trip.check(options, n)
			}
			for _, path := range slices.Sorted(maps.Keys(trip.found)) {
				errs = append(errs, fmt.Errorf("%T by way of %T: %s", trip.from.empty(), trip.by.empty(),
					trip.found[path]))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("round trips of %s:\n%w", c.name, err)
	}
	return nil
}

// roundTrip is the way of objects of a version through another one.
type roundTrip struct {
	from, by, hub *version
	lossy         []string
	found         map[string]string // the first difference, by its path
}

// check converts the object with the number n, and records the differences.
func (r *roundTrip) check(options RoundTrips, n int) {
	//nolint:gosec // reproducible values of a test
	f := &filler{random: rand.New(rand.NewPCG(0, uint64(n))), full: n == 0}
	obj := r.from.empty()
	f.fill(reflect.ValueOf(obj).Elem())
	fillMeta(f, obj)
	if options.Adjust != nil {
		options.Adjust(obj)
	}
	var before, after any
	err := throughJSON(obj, &before)
	if err != nil {
		r.record("", fmt.Sprintf("encode an object: %v", err))
		return
	}
	panicked := (*usercode.Guard)(nil).Call("the conversion", func() {
		var other, back kube.Object
		if other, err = convertObject(r.from, r.by, r.hub.empty, obj); err != nil {
			return
		}
		// The API server encodes the object between the conversions.
		stored := r.by.empty()
		if err = throughJSON(other, stored); err != nil {
			return
		}
		if back, err = convertObject(r.by, r.from, r.hub.empty, stored); err == nil {
			err = throughJSON(back, &after)
		}
	}, nil)
	if panicked != nil {
		err = panicked
	}
	if err != nil {
		r.record(usercode.Text(err), fmt.Sprintf("object %d: %s", n, usercode.Text(err)))
		return
	}
	r.compare("", before, after)
}

func (r *roundTrip) record(path, text string) {
	if _, known := r.found[path]; !known {
		r.found[path] = text
	}
}

// compare records the differences of two JSON values.
func (r *roundTrip) compare(path string, before, after any) {
	if reflect.DeepEqual(before, after) || slices.Contains(r.lossy, path) {
		return
	}
	oldFields, wasMap := before.(map[string]any)
	newFields, isMap := after.(map[string]any)
	if wasMap && isMap {
		names := slices.AppendSeq(slices.Collect(maps.Keys(oldFields)), maps.Keys(newFields))
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			below := strings.TrimPrefix(path+"."+name, ".")
			old, existed := oldFields[name]
			current, exists := newFields[name]
			switch {
			case existed && exists:
				r.compare(below, old, current)
			case slices.Contains(r.lossy, below):
			case existed:
				r.record(below, fmt.Sprintf("%s is lost: it was %s", below, shortJSON(old)))
			default:
				r.record(below, fmt.Sprintf("%s is added: it is %s", below, shortJSON(current)))
			}
		}
		return
	}
	oldItems, wasList := before.([]any)
	newItems, isList := after.([]any)
	if wasList && isList && len(oldItems) == len(newItems) {
		for i := range oldItems {
			r.compare(path+"[]", oldItems[i], newItems[i])
		}
		return
	}
	r.record(path, fmt.Sprintf("%s is changed from %s to %s", path, shortJSON(before), shortJSON(after)))
}

func shortJSON(value any) string {
	content, _ := json.Marshal(value) // it was decoded from JSON
	return usercode.ShortenTo(string(content), 80)
}

// throughJSON encodes an object, and decodes it into another value.
func throughJSON(obj, into any) error {
	encoded, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	return kjson.UnmarshalCaseSensitivePreserveInts(encoded, into)
}

// filler sets values to random content.
type filler struct {
	random *rand.Rand
	full   bool           // each field has a value
	within []reflect.Type // the structs, lists and maps around the current value
}

// fillMeta replaces the metadata by what an object of the API server can have.
func fillMeta(f *filler, obj kube.Object) {
	*metaOf(obj) = metav1.ObjectMeta{
		Name: f.text(), Namespace: f.text(), UID: "1", ResourceVersion: "2", Generation: 3,
		CreationTimestamp: metav1.NewTime(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Local()),
	}
	if f.present() {
		obj.SetLabels(map[string]string{f.text(): f.text()})
	}
	if f.present() {
		obj.SetAnnotations(map[string]string{f.text(): f.text()})
	}
}

// present decides whether an optional field has a value.
func (f *filler) present() bool { return f.full || f.random.IntN(3) > 0 }

func (f *filler) text() string { return fmt.Sprintf("t%d", f.random.IntN(1000)) }

// fill sets a value, and everything below it.
func (f *filler) fill(v reflect.Value) {
	if !v.CanSet() || v.Type() == reflect.TypeFor[metav1.ObjectMeta]() ||
		v.Type() == reflect.TypeFor[metav1.TypeMeta]() {
		return
	}
	if f.encoded(v) {
		return
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map:
		if slices.Contains(f.within, v.Type()) { // a recursive type
			return
		}
		f.within = append(f.within, v.Type())
		defer func() { f.within = f.within[:len(f.within)-1] }()
	}
	switch v.Kind() {
	case reflect.Pointer:
		if f.present() {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem())
		}
	case reflect.Struct:
		f.fillFields(v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes([]byte(f.text()))
			return
		}
		items := reflect.MakeSlice(v.Type(), 1+f.random.IntN(3), 4)
		for i := range items.Len() {
			f.fillItem(items.Index(i))
		}
		v.Set(items)
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Map:
		f.fillMap(v)
	case reflect.Interface:
		if v.NumMethod() == 0 {
			v.Set(reflect.ValueOf(f.text()))
		}
	default:
		f.fillScalar(v)
	}
}

func (f *filler) fillFields(v reflect.Value) {
	for info, field := range v.Fields() {
		switch {
		case info.Anonymous && !info.IsExported() && field.Kind() == reflect.Struct:
			// it cannot be set, but its fields can
			f.fillFields(field)
		case field.Kind() == reflect.Pointer || f.present():
			f.fill(field)
		}
	}
}

func (f *filler) fillMap(v reflect.Value) {
	entries := reflect.MakeMap(v.Type())
	for range 1 + f.random.IntN(3) {
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fillItem(key)
		f.fillItem(value)
		entries.SetMapIndex(key, value)
	}
	v.Set(entries)
}

// fillItem fills an item, which is not an empty text or number: schemas rarely accept these.
func (f *filler) fillItem(v reflect.Value) {
	f.fill(v)
	for range 100 {
		if !v.IsZero() || v.Kind() == reflect.Struct || v.Kind() == reflect.Bool {
			return
		}
		f.fill(v)
	}
}

// fillScalar sets a value other than the zero value in full objects. The zero value behind a pointer is a value too.
func (f *filler) fillScalar(v reflect.Value) {
	number := 1 + f.random.IntN(100)
	if !f.full && f.random.IntN(5) == 0 {
		number = 0
	}
	switch {
	case v.Kind() == reflect.String && number > 0:
		v.SetString(f.text())
	case v.Kind() == reflect.Bool:
		v.SetBool(number > 0)
	case v.CanInt():
		v.SetInt(int64(number))
	case v.CanUint():
		v.SetUint(uint64(number)) //nolint:gosec // it is small
	case v.CanFloat():
		v.SetFloat(float64(number) + 0.5)
	}
}

// encoded fills a value with its own JSON encoding from examples. It reports whether the type has one.
func (f *filler) encoded(v reflect.Value) bool {
	_, isJSON := reflect.TypeAssert[json.Unmarshaler](v.Addr())
	if _, isText := reflect.TypeAssert[encoding.TextUnmarshaler](v.Addr()); !isJSON && !isText {
		return false
	}
	number := f.random.IntN(50)
	examples := []string{
		// runtime.RawExtension, apiextensions.JSON, metav1.FieldsV1
		fmt.Sprintf(`{"t%d":"u"}`, number),
		fmt.Sprintf(`"2026-01-02T03:04:%02dZ"`, number),        // metav1.Time
		fmt.Sprintf(`"2026-01-02T03:04:%02d.123456Z"`, number), // metav1.MicroTime
		fmt.Sprintf(`"%dm0s"`, number+1),                       // metav1.Duration
		fmt.Sprintf(`"%dMi"`, number+1),                        // resource.Quantity
		fmt.Sprintf(`"10.0.0.%d"`, number),                     // netip.Addr
		fmt.Sprintf(`"t%d"`, number), fmt.Sprint(number + 1), "true", fmt.Sprintf(`["t%d"]`, number),
	}
	if v.Type() == reflect.TypeFor[intstr.IntOrString]() {
		f.random.Shuffle(len(examples), func(i, j int) { examples[i], examples[j] = examples[j], examples[i] })
	}
	for _, example := range examples {
		if json.Unmarshal([]byte(example), v.Addr().Interface()) != nil {
			continue
		}
		if encoded, err := json.Marshal(v.Interface()); err == nil && string(encoded) == example {
			return true
		}
	}
	v.SetZero()
	return true
}
