package informer

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/evenkeel-go/evenkeel/internal/apiobject"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
	"github.com/evenkeel-go/evenkeel/kube"
)

// defaultsKey identifies the informers of a Cluster that have the same defaults.
type defaultsKey struct {
	kind   schema.GroupVersionKind
	object reflect.Type
}

// defaultFields returns the fields of Config that have defaults. The selection is in Retriever.
func defaultFields() []string {
	return []string{"Optional", "KeepManagedFields", "KeepAppliedBy", "Cut", "Transform", "Indexes", "OnError"}
}

// SetDefaults sets defaults for all informers of a Cluster, kind and Go type, those of config.Retriever, which are
// created later: also for those that controllers, sources and children create. Each field that is zero in the Config of
// an informer gets the value in config: Optional, KeepManagedFields, KeepAppliedBy, Cut, Transform, Indexes, OnError
// (an empty Cut or Indexes that is not nil counts as set). A Retriever of Retrieve, RetrieveSelected or
// RetrieveMetadata that selects nothing by labels and fields, also one of SetRetriever, gets their selectors in
// config.Retriever; the FieldSelector "metadata.name!=" still selects all. Informers of metadata, such as that of
// source.Owned, have another Go type: set their defaults with RetrieveMetadata.
//
// An informer with a KeepAppliedBy of its own, such as that of children (package watched), gets no selectors, Cut and
// Transform: client.Apply needs whole objects, and children must not be missed. One with a Transform of its own gets no
// KeepAppliedBy. Retrievers of the program, and of several Clusters, have no defaults.
//
// Errors: a Retriever that is not of one Cluster, or that has Namespaces, which Cluster.SetNamespaces sets; other
// fields; those of New; a second call; an informer that was created already.
func SetDefaults[T kube.Object](config Config[T]) error {
	err := config.checkDefaults()
	if err == nil {
		config.Cut, config.Indexes = slices.Clone(config.Cut), slices.Clone(config.Indexes)
		first := directParts(config.Retriever)[0]
		err = apiobject.ObserversOf(first.cluster).SetDefaults(first.defaultsKey(), config)
	}
	if err != nil {
		kind := ""
		if config.Retriever != nil {
			kind = config.Retriever.Describe().kind() + " as "
		}
		return fmt.Errorf("set the defaults of informers of %s%s: %w", kind, reflect.TypeFor[T](), err)
	}
	return nil
}

// checkDefaults returns the mistakes in a config of SetDefaults.
func (c Config[T]) checkDefaults() error {
	direct := directParts(c.Retriever)
	if direct == nil {
		err := errors.New("Retriever must be one of Retrieve, RetrieveSelected or RetrieveMetadata, of one Cluster")
		if c.Retriever != nil {
			err = errors.Join(c.Retriever.Describe().Problem, err)
		}
		return err
	}
	var mistakes usercode.Mistakes
	others := usercode.OtherFields(c, append(defaultFields(), "Retriever")...)
	mistakes.AddIf(len(others) > 0, "%s: set them for each informer, or for the Cluster", strings.Join(others, ", "))
	several := slices.ContainsFunc(direct, func(r *clusterRetriever[T]) bool {
		return r.labels != direct[0].labels || r.fields != direct[0].fields
	})
	mistakes.AddIf(several, "the Retriever has several selections")
	limited := slices.ContainsFunc(direct, func(r *clusterRetriever[T]) bool {
		return len(r.limit) == 0 && (r.namespace != "" || len(r.cluster.Namespaces()) > 0)
	})
	mistakes.AddIf(limited, "the Retriever has Namespaces: Cluster.SetNamespaces sets those of all informers")
	_, err := build(c)
	mistakes.Join(err)
	return mistakes.Err()
}

// withDefaults returns the config with the defaults of its Cluster, kind and Go type.
func (c Config[T]) withDefaults() Config[T] {
	direct := directParts(c.Retriever)
	if direct == nil {
		return c
	}
	stored := apiobject.ObserversOf(direct[0].cluster).Defaults(direct[0].defaultsKey())
	defaults, ok := stored.(Config[T])
	if !ok {
		return c
	}
	if c.KeepAppliedBy != "" {
		defaults.Cut, defaults.Transform = nil, nil
	} else if !slices.ContainsFunc(direct, func(r *clusterRetriever[T]) bool { return r.labels+r.fields != "" }) {
		selected, by := make([]Retriever[T], len(direct)), directParts(defaults.Retriever)[0]
		for i, r := range direct {
			one := *r
			one.labels, one.fields = by.labels, by.fields
			selected[i] = &one
		}
		c.Retriever = Combine(selected...)
	}
	if c.Transform != nil {
		defaults.KeepAppliedBy = ""
	}
	usercode.FillIn(&c, defaults, defaultFields()...)
	return c
}

// directParts returns the parts of a Retriever of Retrieve, RetrieveSelected or RetrieveMetadata for one Cluster and
// kind, and nil for others.
func directParts[T kube.Object](r Retriever[T]) (direct []*clusterRetriever[T]) {
	for _, part := range partsOf(r) {
		one, ok := part.(*clusterRetriever[T])
		if !ok || one.cluster == nil || direct != nil && one.cluster != direct[0].cluster {
			return nil
		}
		direct = append(direct, one)
	}
	return direct
}

func (r *clusterRetriever[T]) defaultsKey() defaultsKey {
	return defaultsKey{r.kind, reflect.TypeFor[T]()}
}
