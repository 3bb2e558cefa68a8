package launch

import "reflect"

// CallerCheckTypes are the types that a check before the resolution is given.
func CallerCheckTypes() []reflect.Type {
	return []reflect.Type{reflect.TypeFor[admission](), reflect.TypeFor[call]()}
}
