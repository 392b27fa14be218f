
# The options of bake, serve, and saturate are those of the programs that these commands run.
functions -c _zkv _zkv_itself
_zkv() {
    local -A programs=(bake baker serve kv_store saturate benchmarker)
    local program=$programs[$words[2]]
    if [[ -z $program ]] || ((CURRENT < 3)); then
        _zkv_itself "$@"
        return
    fi
    shift words
    ((CURRENT--))
    words[1]=$program
    _normal
}
