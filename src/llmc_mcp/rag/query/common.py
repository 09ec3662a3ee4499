"""Names of methods that the types of a language and of its standard library have.

A call of one on an unknown receiver is no sign that this project's method is meant, even if the project has only one.
"""

from io import BufferedRandom, TextIOWrapper

_TYPES = (str, bytes, list, dict, set, tuple, int, float, BaseException, type, TextIOWrapper, BufferedRandom)
_PYTHON = """
acquire cancel commit connect cursor debug error exception execute fetchall fetchone group groups info main match name
now parse recv release result rollback run search send shutdown start stop submit wait warning
"""
_SCRIPT = """
add addEventListener all any apply assign at bind call catch clear clone close concat create delete emit end entries
error every exec fill filter finally find findIndex flat flatMap forEach format from get has includes indexOf info join
json keys length log lastIndexOf map match name next normalize now of off on once open padEnd padStart parse pop push
read reduce remove removeEventListener repeat replace replaceAll reset resolve reverse search send set shift size slice
some sort splice split start startsWith endsWith stop stringify sub substring test text then throw toISOString toString
trim unshift update valueOf values warn write
"""
_RUST = """
abs all and and_then any append as_bytes as_deref as_mut as_path as_ptr as_ref as_slice as_str borrow borrow_mut build
by_ref bytes cause chain chars checked_add clear clone cloned cmp collect concat contains contains_key copied count
cycle dedup default deref drain drop elapsed ends_with entry enumerate eq err exists expect extend fill filter
filter_map find first flat_map flatten flush fmt fold for_each from from_str get get_mut hash id insert inspect into
into_inner into_iter is_empty is_err is_none is_ok is_some is_some_and iter iter_mut join keys kind kill last len lines
load lock map map_err map_or matches max min name ne new next next_back notify nth ok ok_or ok_or_else or or_else
or_insert or_insert_with output parse partial_cmp partition path peek peekable pop position product push push_back
push_front push_str read read_line read_to_end read_to_string recv remove replace reserve resize retain rev rfind run
scan send set shutdown skip sleep sort sort_by sort_by_key source spawn split split_at split_off start starts_with
status step_by store strip_prefix strip_suffix sum swap swap_remove take take_while then to_owned to_string to_vec trim
truncate try_from try_into try_lock try_recv try_send unlock unwrap unwrap_err unwrap_or unwrap_or_default
unwrap_or_else unzip update upgrade values values_mut wait wake windows with_capacity write write_all write_str zip
"""
_GO = """
Add Bytes Call Cancel Clone Close Context Copy Day Deadline Del Dial Do Done Elem Equal Err Error Errorf Execute Exit
Fatal Fatalf Field Flush Format Get Hash Header Helper Host Index Int Interface IsNil IsZero Join Key Kind Len Less
Load Lock Log Logf Match Method Name Next Open Path Ping Port Print Printf Println Query RLock RUnlock Read ReadAll
Ready Reset Run Scan Seek Send Set ServeHTTP Sleep Start Stat Stop Store String Sub Sum Swap Sync Time Type Unlock
Unmarshal Unwrap Value Values Wait Warn Write WriteHeader WriteString
"""
_JAVA = """
accept accumulateAndGet add addAll addFirst addLast allMatch andThen anyMatch append apply applyAsInt asList await build
cancel cast charAt clear clone close collect compare compareTo compose concat contains containsKey containsValue convert
copy copyOf count create decode decrementAndGet delete description distinct encode endsWith entrySet equals execute
exists filter find findAny findFirst finish flatMap flush forEach format from get getAndSet getAnnotation getArguments
getBytes getCause getClass getComponentType getDeclaringClass getField getFields getId getInstance getInterfaces getKey
getLength getMessage getMethod getMethods getModifiers getName getOrDefault getParameterTypes getParent getPath
getRawType getReturnType getSimpleName getSize getStackTrace getSuperclass getTime getType getTypeName getValue group
handle hasNext hashCode identity incrementAndGet indexOf init insert intValue interrupt invoke isArray isDone isEmpty
isInstance isInterface isPresent iterator join keySet lastIndexOf length limit lines list load lock longValue lookup map
mark matches max merge min name negate newInstance next nextElement noneMatch now of ofNullable open or orElse orElseGet
ordinal parallel parse peek poll pop previous print println process push put putAll putIfAbsent query read readLine
reduce release remove removeAll removeIf replace replaceAll reset resolve retainAll reverse run schedule send set
setAccessible setLength shutdown size skip sleep sort sorted split start startsWith stop stream submit substring
supply takeWhile test then toArray toCharArray toList toLowerCase toString toUpperCase transform trim unlock update
validate valueOf values wait write
"""
METHODS: dict[str, frozenset[str]] = {  # by how a language's imports work
    "python": frozenset({*_PYTHON.split(), *(name for kind in _TYPES for name in dir(kind))}),
    "script": frozenset(_SCRIPT.split()),
    "rust": frozenset(_RUST.split()),
    "folder": frozenset(_GO.split()),
    "class": frozenset(_JAVA.split()),
}
