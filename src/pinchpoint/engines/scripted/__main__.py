from pinchpoint.engines.scripted.start import main

main()
