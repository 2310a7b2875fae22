package controllerruntime

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	ctrlhandler "sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/evenkeel-go/evenkeel/controller"
	"github.com/evenkeel-go/evenkeel/internal/usercode"
)

// Builder makes a controller of a manager of controller-runtime whose Reconciler the engine of this module calls. Its
// methods are those of controller-runtime's builder.
type Builder struct {
	manager  manager.Manager
	name     string
	options  ctrlcontroller.Options
	filters  []predicate.Predicate
	primary  client.Object // of For
	watches  []watch
	mistakes usercode.Mistakes
}

// watch is a call of For, Owns or Watches.
type watch struct {
	method  string
	object  client.Object
	handler func(*Builder) ctrlhandler.EventHandler
	options []builder.WatchesOption
}

// NewControllerManagedBy returns a Builder for a controller of m. It takes the place of
// controller-runtime's function of this name, for one controller at a time.
func NewControllerManagedBy(m manager.Manager) *Builder { return &Builder{manager: m} }

// For sets the kind that is reconciled.
func (b *Builder) For(object client.Object, opts ...builder.ForOption) *Builder {
	if b.primary != nil {
		b.mistakes.Addf("For was called twice")
		return b
	}
	b.primary = object
	return b.watch("For", object, func(*Builder) ctrlhandler.EventHandler {
		return &ctrlhandler.EnqueueRequestForObject{}
	}, watchesOptions(b, "For", opts))
}

// Owns reconciles the owners of objects: their controllers, or with builder.MatchEveryOwner all owners.
func (b *Builder) Owns(object client.Object, opts ...builder.OwnsOption) *Builder {
	only := []ctrlhandler.OwnerOption{ctrlhandler.OnlyControllerOwner()}
	var others []builder.OwnsOption
	for _, opt := range opts {
		if opt == builder.OwnsOption(builder.MatchEveryOwner) {
			only = nil
		} else {
			others = append(others, opt)
		}
	}
	return b.watch("Owns", object, func(b *Builder) ctrlhandler.EventHandler {
		return ctrlhandler.EnqueueRequestForOwner(
			b.manager.GetScheme(), b.manager.GetRESTMapper(), b.primary, only...)
	}, watchesOptions(b, "Owns", others))
}

// Watches reconciles what an event handler enqueues. The handler may use its queue during a call and later.
func (b *Builder) Watches(
	object client.Object, eventHandler ctrlhandler.EventHandler, opts ...builder.WatchesOption,
) *Builder {
	b.mistakes.AddIf(usercode.IsNil(eventHandler), "Watches of %T: the event handler is nil", object)
	return b.watch("Watches", object, func(*Builder) ctrlhandler.EventHandler { return eventHandler }, opts)
}

func (b *Builder) watch(
	method string, object client.Object, handler func(*Builder) ctrlhandler.EventHandler, opts []builder.WatchesOption,
) *Builder {
	b.mistakes.AddIf(usercode.IsNil(object), "%s: the object is nil", method)
	b.watches = append(b.watches, watch{method, object, handler, opts})
	return b
}

// watchesOptions returns options of For or Owns as those of Watches, which the builder of controller-runtime gets.
func watchesOptions[O any](b *Builder, method string, opts []O) (all []builder.WatchesOption) {
	for _, opt := range opts {
		of, ok := any(opt).(builder.WatchesOption)
		b.mistakes.AddIf(!ok, "%s: the option %T cannot be mapped", method, opt)
		all = append(all, of)
	}
	return all
}

// WithEventFilter adds a predicate for the events of all kinds.
func (b *Builder) WithEventFilter(p predicate.Predicate) *Builder {
	b.filters = append(b.filters, p)
	return b
}

// WithOptions sets the options. NewQueue, and UsePriorityQueue with false, are errors of Complete.
func (b *Builder) WithOptions(options ctrlcontroller.Options) *Builder {
	b.options = options
	return b
}

// Named sets the name. Default: the kind of For in lower case.
func (b *Builder) Named(name string) *Builder {
	b.name = name
	return b
}

// Complete is Build without the controller.
func (b *Builder) Complete(r reconcile.Reconciler) error {
	_, err := b.Build(r)
	return err
}

// Build adds the controller to the manager, which runs it. The result explains its runs. The error contains every
// option that cannot be mapped.
func (b *Builder) Build(r reconcile.Reconciler) (*controller.Controller[controller.NoObject], error) {
	if err := b.validate(r); err != nil {
		return nil, fmt.Errorf("build controller %q: %w", b.name, err)
	}
	var kind schema.GroupVersionKind
	if b.primary != nil {
		var err error
		if kind, err = apiutil.GVKForObject(b.primary, b.manager.GetScheme()); err != nil {
			return nil, fmt.Errorf("build controller %q: find the kind of a %T: %w", b.name, b.primary, err)
		}
	}
	name := cmp.Or(b.name, strings.ToLower(kind.Kind))
	options := b.options
	if r != nil {
		options.Reconciler = r
	}
	global := b.manager.GetControllerOptions()
	if concurrency := global.GroupKindConcurrency[kind.GroupKind().String()]; b.primary != nil && concurrency > 0 {
		options.MaxConcurrentReconciles = cmp.Or(options.MaxConcurrentReconciles, concurrency)
	}
	options.DefaultFromConfig(global)
	if options.LogConstructor == nil {
		options.LogConstructor = b.logConstructor(name, kind)
	}
	c, err := b.newRunnable(name, options)
	if err == nil {
		err = b.manager.Add(c)
	}
	if err != nil {
		return nil, fmt.Errorf("build controller %q: %w", name, err)
	}
	return c.engine, nil
}

// validate reports every mistake.
func (b *Builder) validate(r reconcile.Reconciler) error {
	var mistakes usercode.Mistakes
	mistakes.Join(b.mistakes.Err())
	owns := func(w watch) bool { return w.method == "Owns" }
	mistakes.AddIf(usercode.IsNil(r) && b.options.Reconciler == nil, "the Reconciler is nil")
	mistakes.AddIf(!usercode.IsNil(r) && b.options.Reconciler != nil, "the Reconciler is set in Options too")
	mistakes.AddIf(len(b.watches) == 0, "For or Watches is required")
	mistakes.AddIf(b.primary == nil && slices.ContainsFunc(b.watches, owns), "Owns needs For")
	mistakes.AddIf(b.primary == nil && b.name == "", "For or Named is required")
	mistakes.AddIf(b.options.NewQueue != nil, "Options.NewQueue cannot be mapped: the engine has its own queue")
	if b.manager == nil {
		mistakes.Addf("the Manager is nil")
		return mistakes.Err()
	}
	options := b.options
	options.DefaultFromConfig(b.manager.GetControllerOptions())
	mistakes.AddIf(options.UsePriorityQueue != nil && !*options.UsePriorityQueue,
		"UsePriorityQueue false cannot be mapped: the engine's queue has priorities")
	return mistakes.Err()
}

// logConstructor returns the default of controller-runtime's builder.
func (b *Builder) logConstructor(name string, kind schema.GroupVersionKind) func(*reconcile.Request) logr.Logger {
	base := b.manager.GetLogger().WithValues("controller", name)
	if b.primary != nil {
		base = base.WithValues("controllerGroup", kind.Group, "controllerKind", kind.Kind)
	}
	return func(req *reconcile.Request) logr.Logger {
		if req == nil {
			return base
		}
		logger := base
		if b.primary != nil {
			logger = logger.WithValues(kind.Kind, klog.KRef(req.Namespace, req.Name))
		}
		return logger.WithValues("namespace", req.Namespace, "name", req.Name)
	}
}
