package informer

import (
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/evenkeel-go/evenkeel/internal/wire"
)

// LastApplied is the path, for Config.Cut, of the annotation in which kubectl apply stores a copy of the object.
const LastApplied = wire.LastApplied

// Query selects the objects that meet all conditions that are set. The zero Query selects all objects.
type Query struct {
	// Namespace, if not empty, is the objects' namespace.
	Namespace string
	// Labels, if not nil, must match the objects' labels. The first query that requires a label to have one of some
	// values (=, ==, in) builds an index of that label, and later queries use it. The informer keeps indexes of at most
	// 16 labels. Other requirements are checked object by object. labels.Parse, labels.SelectorFromSet and
	// metav1.LabelSelectorAsSelector return selectors.
	Labels labels.Selector
	// OwnerUID, if not empty, is the UID in one of the objects' owner references.
	OwnerUID types.UID
	// Index, if not empty, is the Name of one of Config.Indexes, and Value must be among the values of that index for
	// an object. A Value without an Index is an error, and so is an Index that does not exist.
	Index, Value string
}
