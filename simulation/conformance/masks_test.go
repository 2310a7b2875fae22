package conformance

// mask is an accepted difference between the servers.
type mask struct{ name, reason string }

const (
	maskManagerOrder        = "order of managers"
	maskSchemaErrors        = "schema errors"
	maskErrorOrder          = "order of errors"
	maskConflictOrder       = "order of conflicts"
	maskListVersion         = "list version"
	maskStaleWarnings       = "stale warnings"
	maskNamespaceFinalizers = "finalizers of namespaces"
	maskPatchedObject       = "object in message"
	maskTemplateGeneration  = "template generation"
	maskTerminationTime     = "time of termination"
	maskPanic               = "panic"
	maskInternalTraffic     = "internalTrafficPolicy"
	maskInitializing        = "initializing storage"
)

// masks returns all accepted differences.
func masks() []mask {
	return []mask{
		{maskManagerOrder, "managers are sorted by the second of their writes. An apply that changes nothing is a change if it moves its manager: the version has the symbol of the one before, and the event is removed"},
		{maskSchemaErrors, "an applied configuration is validated in random order, until a field that the schema does not have: if there is such a field or several errors, they are removed"},
		{maskErrorOrder, "the errors of a custom resource's schema, of the keys of a ConfigMap or Secret, and of the stored versions of a definition, have a random order in the real server: they are sorted"},
		{maskConflictOrder, "the conflicts of an apply have a random order in the real server: they are sorted"},
		{maskListVersion, "other clients write to the real server all the time: the version of a list, which is at least the latest version that was sent, is one symbol"},
		{maskStaleWarnings, "the real server first tries a write on the object in its cache, which may be stale: the warnings of that attempt are removed from responses 404 and 409"},
		{maskNamespaceFinalizers, "the real server reorders the finalizers of a deleted namespace at random: they are sorted"},
		{maskTemplateGeneration, "a DaemonSet has the generation of its template in an annotation, which the real server does not show in PartialObjectMetadata: it is removed there"},
		{maskPatchedObject, "the message about a patch that makes an object invalid contains the whole object, with its managed fields in the order of their times: that object is removed"},
		{maskPanic, "the real server panics when an update makes a Service without cluster IP of one with an address and two families, and closes the connection: that response is not compared"},
		{maskTerminationTime, "a definition's condition Terminating gets a new time when its status changes, which the server then manages. It is the same time if that happens within a second: it is removed from managed fields"},
		{maskInternalTraffic, "the real server stores this field of a Service of type ExternalName, and only shows it in responses for the status: it is removed"},
		{maskInitializing, "after a change of a definition, the real server answers requests for its custom resources with 429 until their storage has read etcd, which takes longer on a busy machine: the request is repeated"},
	}
}
