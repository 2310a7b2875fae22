// Package owned keeps the children of an object in their desired state: for example the Deployment, the Service and the
// ConfigMap of a custom resource, in any namespace. Its input is the list of all desired children. It applies them in
// order, deletes the children that are not desired anymore, and reports the state of each.
//
//	children, err := owned.New(owned.Config{Client: c, Name: "webapp", Kinds: kinds})
//	...
//	report, err := children.Apply(ctx, app, slices.Concat(owned.Of(config, service), owned.Wave(1, deployment))...)
//
// # Parts of an operator
//
// Package owned/watched creates a Set together with the informers, the client and the sources that it needs. A handler
// calls Set.Apply and sets conditions from Report.States with package status; middleware.Status writes them at the end
// of the run. If children have no owner reference, or things outside of the cluster must be deleted, a step of package
// finalizer calls Set.Delete. examples/webapp is such an operator.
//
// # Child ownership
//
// A set identifies its children by labels and annotations: see LabelSet.
//
// Where Kubernetes allows an owner reference, the owner is also the controller of the child. A name is never enough to
// identify a child: a Set does not change an object with the name of a child that belongs to another owner. It reports
// the object with a ForeignError.
package owned
